"""about: the source of an operator is a file of the machine
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["operators"][0]["source"] = "../../../../etc/passwd"
    write_manifest(package, manifest)
