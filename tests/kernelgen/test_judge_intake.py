"""Text and objects nobody has read: what the screen, the walled compiler and the object reader
refuse, and what they let through.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kernelgen.attacks.suite import folder
from kernelgen.judge import elf, intake, sandbox, screen, symbols
from kernelgen.judge.session import Refusal
from kernelgen.judge.terms import WRITTEN
from kernelgen.targets.cpu import compile_shared

PRELUDE = (folder() / "kernel.h").read_text()
PLAIN = (
    PRELUDE
    + """NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
           void *scratch) { (void)in, (void)out, (void)dim, (void)packed, (void)scratch; return 0; }
"""
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    outcome = compile_shared(PLAIN, ("-O2",), tmp_path_factory.mktemp("plain") / "plain.so")
    assert outcome.path is not None
    return outcome.path.read_bytes()


@pytest.mark.parametrize(
    "flags",
    [
        ("-O3", "-march=x86-64-v4", "-mprefer-vector-width=512", "-fno-math-errno"),
        ("-Ofast", "-mamx-tile", "-ffast-math", "-Wall", "-std=gnu11", "-g1"),
        ("-march=armv8.2-a+dotprod", "-mcpu=neoverse-n1", "-fno-trapping-math"),
    ],
)
def test_flags_that_choose_code_are_fine(flags: tuple[str, ...]) -> None:
    screen.check_flags(flags)


@pytest.mark.parametrize(
    "flag",
    [
        "-fplugin=x.so", "-include", "/etc/passwd", "@file", "-wrapper", "-B.", "-specs=x", "-I/",
        "-L/", "-lssl", "-Wl,-init,f", "-Wa,-a", "-Wp,-M", "-Xlinker", "-T", "-o", "x", "-E", "-M",
        "-save-temps", "-fdump-tree-all", "-fprofile-use=x", "-fno-sanitize=all", "-x", "-pipe",
        "-Dkernel=x", "-O9", "", "-", "--help", "-fsanitize=thread",
    ],
)  # fmt: skip
def test_flags_that_name_files_or_programs_are_refused(flag: str) -> None:
    with pytest.raises(Refusal, match="forbidden_source"):
        screen.check_flags(["-O2", flag])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__attribute__((__constructor__)) void f(void);", "constructor"),
        ("__attribute__((destructor(101))) void f(void);", "constructor"),
        ("[[gnu::constructor]] void f(void);", "constructor"),
        ("[ [gnu::ifunc(\"x\")]] void f(void);", "constructor"),
        ("__attribute__((weak)) void f(void);", "forbidden_source"),
        ("__attribute__((alias(\"x\"))) void f(void);", "forbidden_source"),
        ("int x __attribute__((section(\"a\")));", "forbidden_source"),
        ("__attribute__((no_sanitize_address)) int f(void);", "forbidden_source"),
        ("__attribute__((", "forbidden_source"),
        ("__thread int x;", "constructor"),
        ("asm(\".byte 1\");", "forbidden_source"),
        ("asm(\"nop; .byte 1\");", "forbidden_source"),
        ("asm(\"nop\\n\\t.byte 1\");", "forbidden_source"),
        ("asm(\"{.byte 1|nop}\");", "forbidden_source"),
        ("asm(\"x: .byte 1\");", "forbidden_source"),
        ("asm(\"/**/.byte 1\");", "forbidden_source"),
        ("asm volatile (\"\\056byte 1\" ::: \"memory\");", "forbidden_source"),
        ("asm goto (\"nop\" \"\\n.macro\" :::: out);", "forbidden_source"),
        ("register int r __asm__(\"\\n.globl x\");", "forbidden_source"),
        ("#pragma weak f\n", "forbidden_source"),
        ("%:pragma weak f\n", "forbidden_source"),
        ("#ident \"x\"\n", "forbidden_source"),
        ("# 5 \"/etc/passwd\"\nint x;", "forbidden_source"),
        ("char *s = R\"(x)\";", "forbidden_source"),
        ("char *s = \"abc\n;", "forbidden_source"),
        ("\0", "forbidden_source"),
    ],
)  # fmt: skip
def test_text_that_asks_for_more_than_code(text: str, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        screen.check_text(text)
    assert caught.value.reason == reason
    with pytest.raises(Refusal):
        screen.check_text(text, WRITTEN)


@pytest.mark.parametrize(
    "text",
    [
        "int constructor, weak, section, alias; float naked(float asm_like);",
        "char *s = \".incbin __attribute__((constructor))\"; char c = '\"'; char d = '\\'';",
        "__asm__ volatile(\"tdpbf16ps %%tmm6, %%tmm4, %%tmm0\\n\\tnop\" ::: );",
        "asm(\"vaddps %0, %1, %2%{%3%}\" : \"=v\"(a) : \"v\"(b), \"v\"(c), \"Yk\"(k));",
        "__attribute__((aligned(64), vector_size(32), always_inline)) int x;",
        "int x = a[b[c[0]]]; float v = 1.5e-3f, w = .5f;",
        "# 1 \"/usr/include/stdint.h\" 1 3 4\nint x;\n# 2 \"kernel.c\" 2\n",
        "#pragma GCC unroll 8\n#pragma GCC optimize(\"O3\")\nint x;",
    ],
)  # fmt: skip
def test_text_that_only_looks_bad_passes(text: str) -> None:
    screen.check_text(text)


@pytest.mark.parametrize("walled", [True, False], ids=["bubblewrap", "plain"])
def test_the_compiler_sees_no_file_of_ours(
    walled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("int hunter2 = ;\n")
    secret.chmod(0o600)
    if not walled:
        monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
        if os.getuid() != 0:
            return  # same user and no wall: it could, and `protection` says so
    outcome = intake.compile_untrusted(f'#include "{secret}"\n', (), tmp_path / "out.so")
    assert outcome.path is None
    assert "hunter2" not in outcome.stderr
    assert not (tmp_path / "out.so").exists()


def test_an_honest_text_compiles_as_ever(tmp_path: Path) -> None:
    outcome = intake.compile_untrusted(PLAIN, ("-O2",), tmp_path / "out.so")
    assert outcome.path == tmp_path / "out.so"
    symbols.check(outcome.path)
    assert list(tmp_path.iterdir()) == [outcome.path]


def test_a_compiler_error_names_its_line(tmp_path: Path) -> None:
    outcome = intake.compile_untrusted("int x;\nint y = ;\n", (), tmp_path / "out.so")
    assert outcome.path is None
    assert "kernel.c:2:" in outcome.stderr


def test_an_object_is_read_as_the_loader_reads_it(library: bytes) -> None:
    image = elf.read(library)
    names = {symbol.name for symbol in image.symbols if symbol.defined}
    assert names >= symbols.REQUIRED
    # Section headers may say anything: nobody looks.
    bare = bytearray(library)
    bare[40:48] = bytes(8)
    bare[60:64] = bytes(4)
    assert elf.read(bytes(bare)) == image


@pytest.mark.parametrize("cut", [0, 3, 16, 63, 64, 200, 1000, 4096, 8192])
def test_a_cut_object_is_an_error_and_no_crash(library: bytes, cut: int) -> None:
    with pytest.raises(elf.ElfError):
        elf.read(library[:cut])


def test_damaged_objects_are_errors_or_read_but_never_a_crash(library: bytes) -> None:
    """Every byte of the header and the program headers, turned one at a time."""
    read = failed = 0
    for place in range(16, 64 + 56 * 8):
        data = bytearray(library)
        data[place] ^= 0xFF
        try:
            elf.read(bytes(data))
            read += 1
        except elf.ElfError:
            failed += 1
    assert read > 50
    assert failed > 20


def test_a_writable_and_executable_segment_is_refused(library: bytes, tmp_path: Path) -> None:
    data = bytearray(library)
    count = struct.unpack_from("<H", data, 56)[0]
    for number in range(count):
        kind, flags = struct.unpack_from("<II", data, 64 + 56 * number)
        if kind == elf.LOAD and flags & elf.EXECUTABLE:
            struct.pack_into("<I", data, 64 + 56 * number + 4, flags | elf.WRITABLE)
    path = tmp_path / "damaged.so"
    path.write_bytes(bytes(data))
    with pytest.raises(Refusal, match="unsafe_object"):
        symbols.check(path)
