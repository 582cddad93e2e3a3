"""about: another library, sealed, that asks for system()
expect: package_refused
"""

from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest
from kernelgen.targets.cpu import compile_shared


def tamper(package: Path) -> None:
    text = (package / "src" / "model.c").read_text()
    text += """
int system(const char *);
__attribute__((used)) static int away(void) { return system("true"); }
"""
    made = compile_shared(text, read_manifest(package)["flags"], package.with_suffix(".so"))
    assert made.path is not None, made.stderr
    (package / "lib" / "model.so").write_bytes(made.path.read_bytes())
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
