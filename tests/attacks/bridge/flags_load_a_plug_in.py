"""about: the flags for building it again load a compiler plug-in
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["operators"][0]["flags"].append("-fplugin=/tmp/evil.so")
    write_manifest(package, manifest)
