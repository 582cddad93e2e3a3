"""Kernels that somebody writes during a search: each property of the wall they meet, seen from
outside. What they may ask for, what the compiler sees, what a failing machine does not do to them.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from kernelgen.attacks import discover
from kernelgen.attacks.fixtures import Case
from kernelgen.judge import intake, sandbox, symbols
from kernelgen.judge.session import Refusal
from kernelgen.judge.terms import WRITTEN
from tests.kernelgen.test_agent_faults import Hunter, needs_root, small_disk
from tests.kernelgen.test_agent_llm import GOOD

REFUSED = {
    "include": ('#include "/etc/passwd"\n', "No such file"),
    "include in angles": ("#include </etc/passwd>\n", "No such file"),
    "include after a comment": ('/*c*/ #include "/etc/passwd"\n', "No such file"),
    "include on two lines": ('#inc\\\nlude "/etc/passwd"\n', "No such file"),
    "include by digraph": ('%:include "/etc/passwd"\n', "No such file"),
    "include made by a macro": ('#define H #\nH include "/etc/passwd"\n', "directive"),
    "include of a system header by path": ('#include "/usr/include/stdio.h"\n', "No such file"),
    "include of itself": ('#include "kernel.c"\n', "nested|limit"),
    "a header of intrinsics": ("#include <immintrin.h>\n", "allowed are"),
    "system header": ("#include <unistd.h>\n", "allowed are"),
    "text of another file": ('# 1 "/etc/passwd"\nint x;\n', "text of the file"),
    "asm": ('__asm__("syscall");', "asm"),
    "asm without a directive": ('__asm__ volatile("nop");', "asm"),
    "asm glued by a macro": ('#define A __a##sm__\nA("x");', "asm"),
    "incbin": ('__asm__(".incbin \\"/etc/passwd\\"");', "asm"),
    "constructor": ("__attribute__((constructor)) void f(void) {}", "attribute"),
    "hidden constructor": ("__attribute__((unused, __constructor__)) void f(void) {}", "attribute"),
    "section": ('__attribute__((section(".init_array"))) void *p;', "attribute"),
    "ifunc": ('__attribute__((ifunc("r"))) void f(void);', "attribute"),
    "alias": ('void f(void) __attribute__((alias("system")));', "attribute"),
    "an attribute nobody listed": ("__attribute__((cleanup(f))) int x;", "attribute cleanup"),
    "bracket attribute": ("[[gnu::constructor]] void f(void) {}", "__attribute__"),
    "pragma optimize": ('#pragma GCC optimize("O0")\n', "directive"),
    "pragma dependency": ('#pragma GCC dependency "/etc/passwd"\n', "passwd"),
    "pragma operator": ('_Pragma("GCC dependency \\"/etc/passwd\\"")\n', "passwd"),
    "precompiled header": ('#pragma GCC pch_preprocess "x"\n', "directive"),
    "thread-local": ("__thread int x;", "thread-local"),
    "trigraph": ("int a;\n??=include <x>", "trigraph"),
    "macro bomb": (
        "#define X x x x x x x x x x x\n#define Y X X X X X X X X X X\n"
        "#define Z Y Y Y Y Y Y Y Y Y Y\n#define W Z Z Z Z Z Z Z Z Z Z\nW W W W W W W W",
        "limit",
    ),
    "not ASCII": ("int caf\u00e9;", "ASCII"),
    "zero byte": ("int a;\0int b;", "zero byte"),
    "too long": ("x" * (WRITTEN.text_bytes + 1), "bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name: str) -> None:
    text, reason = REFUSED[name]
    with pytest.raises(Refusal, match=reason) as caught:
        intake.closed_text(text)
    assert caught.value.reason in ("forbidden_source", "constructor")
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in discover()
        if case.kind == "reply" and {"forbidden_source", "constructor"} >= set(case.expect)
    ],
    ids=lambda case: case.name,
)
def test_no_reply_passes_here_that_a_package_may_not_bring(case: Case) -> None:
    with pytest.raises(Refusal):
        intake.closed_text(case.source)


def test_the_preprocessor_sees_no_file_of_this_machine() -> None:
    """Neither by including nor by asking whether it is there."""
    for path in ("/etc/passwd", "/usr/include/stdio.h", "/usr/share", str(Path(__file__))):
        text = intake.closed_text(f'#if __has_include("{path}")\nint yes;\n#endif\nint no;')
        assert "yes" not in text
        assert "no" in text


def test_a_good_kernel_is_compiled_to_what_the_judge_loads(tmp_path: Path) -> None:
    source = intake.closed_text(GOOD)
    assert "#" not in source
    outcome = intake.compile_closed(source, ("-O3", "-march=x86-64-v3"), tmp_path / "kernel.so")
    assert outcome.path is not None, outcome.stderr
    symbols.check(outcome.path)
    assert list(tmp_path.iterdir()) == [outcome.path]


def test_what_a_kernel_needs_is_granted() -> None:
    intake.closed_text(
        "#include <stdint.h>\n# include <math.h> // exp\n"
        "typedef float eight __attribute__((vector_size(8 * sizeof(float)), aligned(4)));\n"
        "static inline __attribute__((always_inline)) float f(const float *x, int n) {\n"
        "  float sum = 0;\n#pragma GCC unroll 4\n#pragma GCC ivdep\n"
        "  for (int i = 0; i < n; i++) sum += x[i];\n  return expf(sum);\n}\n"
    )


def test_an_error_names_the_line_and_shows_it(tmp_path: Path) -> None:
    text = "int x;\nint kernel(void) { return nothing; }"
    outcome = intake.compile_closed(text, (), tmp_path / "k.so")
    assert outcome.path is None
    assert "kernel.c:2" in outcome.stderr
    assert "undeclared" in outcome.stderr
    assert "return nothing;" in outcome.stderr
    with pytest.raises(Refusal, match=r"kernel\.c:3"):
        intake.closed_text("int a;\nint b;\n#error here\n")


@pytest.mark.parametrize(
    "text",
    [
        "static char big[1ul << 40] = {1}; char *f(void) { return big; }",
        "int f(void) { return (((" + "(" * 40_000 + "1" + ")" * 40_000 + "))); }",
    ],
    ids=["a terabyte", "a deep nest"],
)
def test_a_compiler_bomb_ends_at_a_limit(text: str, tmp_path: Path) -> None:
    began = time.monotonic()
    outcome = intake.compile_closed(text, (), tmp_path / "kernel.so")
    assert time.monotonic() - began < 40
    assert outcome.path is None or outcome.path.stat().st_size < 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/passwd"',
        '__asm__(".incbin \\"/etc/passwd\\"");',
        "#inc\\\nlude <x>",
        '_Pragma("GCC dependency")',
        "__attribute__((constructor)) static void f(void) {}",
    ],
)
def test_the_screen_is_passed_again_before_compiling(text: str, tmp_path: Path) -> None:
    """A kernel may come from records that somebody edited."""
    with pytest.raises(Refusal):
        intake.compile_closed(text, (), tmp_path / "kernel.so")


def test_flags_are_screened_too(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="-fplugin"):
        intake.compile_closed("int x;", ("-fplugin=/tmp/x.so",), tmp_path / "kernel.so")


def test_without_walls_nothing_written_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    with pytest.raises(Refusal, match="install bubblewrap"):
        intake.closed_text("int x;")
    with pytest.raises(Refusal, match="install bubblewrap"):
        intake.compile_closed("int x;", (), tmp_path / "kernel.so")


LONG = "int f(int x) {\n" + "  x = x * 3 + (x >> 1);\n" * 3000 + "  return x;\n}\n"


def test_a_killed_compiler_says_nothing_about_the_text(tmp_path: Path) -> None:
    """SIGKILL to cc1 at its work, by somebody outside."""
    with (
        Hunter(b"cc1", b"-fpreprocessed", 1) as hunter,
        pytest.raises(intake.CompilerKilledError, match="from outside"),
    ):
        intake.compile_closed(LONG, ("-O2",), tmp_path / "kernel.so")
    assert hunter.killed == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "\\ngcc: fatal error: Killed signal terminated program cc1\\n",
        "No space left on device",
    ],
)
def test_no_text_can_blame_the_machine(words: str, tmp_path: Path) -> None:
    text = f'_Static_assert(0, "{words}");\nint x = y;\n'
    outcome = intake.compile_closed(text, (), tmp_path / "kernel.so")
    assert outcome.path is None
    assert "static assertion failed" in outcome.stderr


@needs_root
def test_a_full_disk_says_nothing_about_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = intake.closed_text(GOOD)
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        disk.chmod(0o755)
        (disk / "other").write_bytes(bytes(40 << 10))
        with pytest.raises(OSError, match="No space left"):
            intake.compile_closed(source, ("-O2",), tmp_path / "kernel.so")
        monkeypatch.undo()
        (disk / "other").write_bytes(bytes(52 << 10))
        with pytest.raises(OSError, match="No space left"):
            intake.compile_closed(source, ("-O2",), disk / "kernel.so")
        assert os.listdir(disk) == ["other"]
