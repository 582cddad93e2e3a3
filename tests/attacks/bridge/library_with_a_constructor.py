"""about: another library, sealed, whose code runs on loading
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest
from kernelgen.targets.cpu import compile_shared


def tamper(package: Path) -> None:
    text = (package / "src" / "model.c").read_text()
    text += """
static volatile int ready;
__attribute__((constructor)) static void early(void) { ready = 1; }
"""
    made = compile_shared(text, read_manifest(package)["flags"], package.with_suffix(".so"))
    assert made.path is not None, made.stderr
    (package / "lib" / "model.so").write_bytes(made.path.read_bytes())
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
