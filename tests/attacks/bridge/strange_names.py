"""about: a file name with a line break and a terminal sequence
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["files"]["src/a\n\x1b[2Jb.c"] = "0" * 64
    write_manifest(package, manifest)
