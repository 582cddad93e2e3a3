"""about: the flags for building it again take in a file
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["flags"] += ["-include", "/etc/passwd"]
    write_manifest(package, manifest)
