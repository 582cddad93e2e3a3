"""about: a Python module in the package, sealed into the manifest
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    (package / "sitecustomize.py").write_text("raise SystemExit\n")
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
