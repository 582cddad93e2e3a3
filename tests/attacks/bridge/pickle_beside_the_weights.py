"""about: a pickle that nobody asked for, sealed into the manifest
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    (package / "weights.pkl").write_bytes(b"\x80\x04K\x01.")
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
