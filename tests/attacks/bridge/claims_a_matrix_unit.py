"""about: the manifest claims instructions the library does not hold (Lsglang 23)
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    manifest["isa"] = sorted({*manifest["isa"], "amx_fp16", "avx512_fp16"})
    write_manifest(package, manifest)
