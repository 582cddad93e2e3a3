"""about: a digest that is a prefix of the right one
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["files"]["weights.bin"] = manifest["files"]["weights.bin"][:8]
    write_manifest(package, manifest)
