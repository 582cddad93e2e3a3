"""about: an operator nobody knows
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["operators"][0]["spec"] = {"family": "os.system", "command": "true"}
    write_manifest(package, manifest)
