"""C text of strangers: what the check refuses, what the sandboxed compiler cannot reach."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelgen.agent.confined import (
    TEXT_LIMIT_BYTES,
    SourceRefusedError,
    check,
    compile_confined,
    preprocess,
)
from kernelgen.judge import symbols
from tests.kernelgen.test_agent_llm import GOOD

REFUSED = {
    "include": ('#include "/etc/passwd"\n', "No such file"),
    "include in angles": ("#include </etc/passwd>\n", "No such file"),
    "include after a comment": ('/*c*/ #include "/etc/passwd"\n', "No such file"),
    "include on two lines": ('#inc\\\nlude "/etc/passwd"\n', "No such file"),
    "include by digraph": ('%:include "/etc/passwd"\n', "No such file"),
    "include made by a macro": ('#define H #\nH include "/etc/passwd"\n', "directive"),
    "a header of intrinsics": ("#include <immintrin.h>\n", "allowed are"),
    "system header": ("#include <unistd.h>\n", "allowed are"),
    "asm": ('__asm__("syscall");', "asm"),
    "asm glued by a macro": ('#define A __a##sm__\nA("x");', "asm"),
    "incbin": ('__asm__(".incbin \\"/etc/passwd\\"");', "asm"),
    "constructor": ("__attribute__((constructor)) void f(void) {}", "attribute"),
    "hidden constructor": ("__attribute__((unused, __constructor__)) void f(void) {}", "attribute"),
    "section": ('__attribute__((section(".init_array"))) void *p;', "attribute"),
    "ifunc": ('__attribute__((ifunc("r"))) void f(void);', "attribute"),
    "alias": ('void f(void) __attribute__((alias("system")));', "attribute"),
    "bracket attribute": ("[[gnu::constructor]] void f(void) {}", "__attribute__"),
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
    "too long": ("x" * (TEXT_LIMIT_BYTES + 1), "bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name: str) -> None:
    text, reason = REFUSED[name]
    with pytest.raises(SourceRefusedError, match=reason) as caught:
        preprocess(text)
    assert "root:" not in str(caught.value)


def test_the_preprocessor_sees_no_file_of_this_machine() -> None:
    """Neither by including nor by asking whether it is there."""
    text = preprocess('#if __has_include("/etc/passwd")\nint yes;\n#endif\nint no;')
    assert "yes" not in text
    assert "no" in text


def test_a_good_kernel_is_compiled_to_what_the_judge_loads(tmp_path: Path) -> None:
    source = preprocess(GOOD)
    assert "#" not in source
    outcome = compile_confined(source, ("-march=x86-64-v3",), tmp_path / "kernel.so")
    assert outcome.path is not None, outcome.stderr
    symbols.check(outcome.path)


def test_an_error_names_the_line(tmp_path: Path) -> None:
    outcome = compile_confined("int kernel(void) { return nothing; }", (), tmp_path / "k.so")
    assert outcome.path is None
    assert "kernel.c:1" in outcome.stderr
    assert "undeclared" in outcome.stderr


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
    outcome = compile_confined(text, (), tmp_path / "kernel.so")
    assert time.monotonic() - began < 40
    assert outcome.path is None or outcome.path.stat().st_size < 1 << 20


def test_the_check_is_made_again_before_compiling(tmp_path: Path) -> None:
    """A kernel may come from records that somebody edited."""
    with pytest.raises(SourceRefusedError):
        compile_confined('#include "/etc/passwd"', (), tmp_path / "kernel.so")
    check("int a[2]; int f(void) { return a[a[0]]; }")
