"""about: the manifest names a file above the package
expect: package_refused
"""

import hashlib
from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    outside = package.parent / "outside.txt"
    outside.write_text("x")
    manifest = read_manifest(package)
    manifest["files"]["../outside.txt"] = hashlib.sha256(b"x").hexdigest()
    write_manifest(package, manifest)
