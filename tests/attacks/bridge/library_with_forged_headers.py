"""about: a library whose section headers hide what its dynamic section says
expect: package_refused
"""

import struct
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
    data = bytearray(made.path.read_bytes())
    struct.pack_into(
        "<QIHHHHHH", data, 40, 0, 0, 64, 56, struct.unpack_from("<H", data, 56)[0], 64, 0, 0
    )
    (package / "lib" / "model.so").write_bytes(bytes(data))
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
