"""about: two operators carry each other's schedule
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    first, second = manifest["operators"][:2]
    first["schedule"], second["schedule"] = second["schedule"], first["schedule"]
    write_manifest(package, manifest)
