"""about: the manifest names a file of the machine
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["files"]["/etc/hostname"] = "0" * 64
    write_manifest(package, manifest)
