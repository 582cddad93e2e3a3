"""about: another shared object beside the right one, sealed
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    (package / "lib" / "libm.so.6.so").write_bytes((package / "lib" / "model.so").read_bytes())
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
