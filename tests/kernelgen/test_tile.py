"""The tile IR says what is wrong with a program: at reading, at typing, at running."""

from __future__ import annotations

import numpy as np
import pytest

from kernelgen.emit.c import Writer
from kernelgen.schedule import ScheduleError
from kernelgen.tile import Build, Fault, TileError, check, interpret, parse, text
from kernelgen.tile.build import fill, fma, span, sum_

HEAD = """kernel = "small"
m = dim
x: f32[m, 16] = input
p: i64[m] = input
t: f32[m, 16] = local
u: f32[16] = private
y: f32[m, 16] = output

def run():
"""
COPY = """    for i in parallel(0, m, 1):
        y[i, 0:16] = x[i, 0:16]
"""


def program(body: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))


def arrays(m: int = 3, **more: object) -> dict[str, np.ndarray]:
    x = np.arange(m * 16, dtype=np.float32).reshape(m, 16)
    return {"x": x, "p": np.arange(m, dtype=np.int64), **more}  # type: ignore[dict-item]


def test_a_program_runs_as_it_reads() -> None:
    kernel = parse(HEAD + COPY)
    result = interpret(kernel, arrays(), {"m": 3})
    assert result.code == 0
    np.testing.assert_array_equal(result.outputs["y"], arrays()["x"])
    assert parse(text(kernel)) == kernel


@pytest.mark.parametrize(("cache", "locality"), [(1, 3), (2, 2)])
def test_a_prefetch_names_the_cache_it_fills(cache: int, locality: int) -> None:
    kernel = parse(HEAD + f"    prefetch(x[m + 4, 0], {cache})\n" + COPY)
    assert parse(text(kernel)) == kernel
    np.testing.assert_array_equal(interpret(kernel, arrays(), {"m": 3}).outputs["y"], arrays()["x"])
    assert f", 0, {locality});" in Writer(kernel, 16).text("p")


FAULTS = [
    ("bounds", "for i in range(0, m + 1, 1):\n    y[i, 0:16] = x[i, 0:16]"),
    ("bounds", "for i in range(0, m, 1):\n    y[i, 0:16] = x[i, 8:16]"),
    ("bounds", "y[m - 4, 0:16] = x[0, 0:16]"),
    ("bounds", "y[p[2] + 1, 0:16] = x[0, 0:16]"),
    ("unset", "for i in range(0, m, 1):\n    y[i, 0:16] = t[i, 0:16]"),
    ("unset", "for i in range(0, m, 1):\n    y[i, 0:16] = y[i, 0:16]"),
    (
        "unset",  # a private buffer forgets between turns
        "for i in parallel(0, m, 1):\n"
        "    if i == 0:\n"
        "        u[0:16] = x[i, 0:16]\n"
        "    y[i, 0:16] = u[0:16]",
    ),
    ("race", "for i in parallel(0, m, 1):\n    y[0, 0:16] = x[i, 0:16]"),
    (
        "race",
        "t[0, 0:16] = x[0, 0:16]\n"
        "for i in parallel(0, m, 1):\n"
        "    y[i, 0:16] = t[0, 0:16]\n"
        "    t[0, 0:16] = x[i, 0:16]",
    ),
    (
        "race",
        "for i in parallel(0, m, 1):\n"
        "    t[i, 0:16] = x[i, 0:16]\n"
        "    if 0 < i:\n"
        "        y[i, 0:16] = t[i - 1, 0:16]",
    ),
    ("unwritten", "for i in range(1, m, 1):\n    y[i, 0:16] = x[i, 0:16]"),
    ("unwritten", "for i in range(0, m, 1):\n    y[i, 0:16:15] = x[i, 0:16]"),
    ("division", "y[(0 - m) // 2, 0:16] = x[0, 0:16]"),
    ("division", "y[m % (m - 3), 0:16] = x[0, 0:16]"),
    ("overflow", "a = i32(m) * 1000000\nb = a * a\ny[0, 0:16] = x[0, 0:16]"),
    ("overflow", "a = i8(m * 100)\ny[0, 0:16] = x[0, 0:16]"),
    ("steps", "for i in range(0, 10000000, 1):\n    a = i"),
]


@pytest.mark.parametrize(("kind", "body"), FAULTS)
def test_interpreter_names_the_fault(kind: str, body: str) -> None:
    with pytest.raises(Fault) as caught:
        interpret(parse(program(body)), arrays(), {"m": 3}, most_steps=10_000)
    assert caught.value.kind == kind


def test_exact_refuses_what_rounds() -> None:
    kernel = parse(program("for i in range(0, m, 1):\n    y[i, 0:16] = x[i, 0:16] * 0.5"))
    interpret(kernel, arrays(), {"m": 3})
    with pytest.raises(Fault, match="inexact"):
        interpret(kernel, arrays(), {"m": 3}, exact=True)


MEANINGLESS = [
    ("is not assigned", "y[0, 0:16] = a"),
    ("is not assigned", "for i in range(0, m, 1):\n    a = i\ny[a, 0:16] = x[0, 0:16]"),
    ("dtypes differ", "y[0, 0:16] = x[0, 0:16] + p[0]"),
    ("do not broadcast", "y[0, 0:16] = x[0, 0:16] + x[0, 0:8]"),
    ("a fraction meets i64", "a = m * 0.5"),
    ("cannot be written", "x[0, 0:16] = y[0, 0:16]"),
    ("must be one i64", "y[x[0, 0], 0:16] = x[0, 0:16]"),
    ("1 indices, wanted 2", "y[0] = x[0, 0:16]"),
    ("wanted at most 2", "a = x[0:2, 0:16] + fill(0.0, f32, 2, 2, 2)"),
    ("needs a name of its own", "y[0, 0:16] = sum(x[0, 0:16]) * x[0, 0:16]"),
    ("inside a parallel loop", "a = m\nfor i in parallel(0, m, 1):\n    a = i"),
    ("cannot be assigned", "m = m + 1"),
    ("cannot be assigned", "for i in range(0, m, 1):\n    i = i + 1"),
    ("is taken", "for m in range(0, 3, 1):\n    a = 1"),
    ("holds f32", "a = x[0, 0]\na = m"),
    ("is a buffer", "t = m"),
    ("only the lanes", "a = x[0:2:m, 0:16]"),
    ("wanted an even number", "a = even(x[0, 0:15])"),
    ("a written number of 2 or more", "a = lane(m)"),
    ("a written number of 2 or more", "a = lane(1)"),
    ("step 0", "for i in range(0, m, 0):\n    a = i"),
    ("wanted one bool", "if m:\n    a = m"),
    ("unknown word", "y[0, 0:16] = x[0, 0:16]\nq = launch(m)"),
]


@pytest.mark.parametrize(("reason", "body"), MEANINGLESS)
def test_a_program_without_meaning_is_refused(reason: str, body: str) -> None:
    if reason == "unknown word":
        with pytest.raises(TileError, match="is not part of it"):
            parse(program(body))
        return
    with pytest.raises(TileError, match=reason):
        check(parse(program(body)))


UNREADABLE = [
    "import os",
    "a = x[0, 0].real",
    "a = (lambda: 1)()",
    "a = [i for i in x]",
    "a = __import__('os')",
    "while m < 3:\n    a = m",
    "a = x[0, 0] if m < 3 else x[0, 1]",
    "a = x[0, 0:m]",
    "a = x[0, ::2]",
    "for i in range(0, m):\n    a = i",
    "for i in open(0, m, 1):\n    a = i",
    "a = 'text'",
    "a = True",
    "a = b = m",
    "a += m",
    "check(m < 3, m)",
    "prefetch(x[0, 0])",
    "prefetch(x[0, 0], 3)",
    "prefetch(m, 1)",
    "return m",
    "a = 1 < m < 3",
]


@pytest.mark.parametrize("body", UNREADABLE)
def test_text_outside_the_language_is_refused_by_line(body: str) -> None:
    with pytest.raises(TileError, match=r"line 1[0-9]"):
        parse(program(body))


def test_a_check_ends_the_run_with_its_code() -> None:
    kernel = parse(program("check(p[0] < 1, 7)\n" + "y[0:1, 0:16] = x[0:1, 0:16]"))
    assert interpret(kernel, arrays(1), {"m": 1}).code == 0
    hostile = arrays(1, p=np.array([5], np.int64))
    assert interpret(kernel, hostile, {"m": 1}).code == 7


@pytest.mark.parametrize("name", ["int", "restrict", "row", "arg_in", "all_s", "size_t"])
def test_names_that_c_would_misread_are_refused(name: str) -> None:
    kernel = parse(program(f"{name} = m\ny[0:1, 0:16] = x[0:1, 0:16]"))
    with pytest.raises(ScheduleError, match="taken in C"):
        Writer(kernel, 8)


def test_builder_and_text_are_two_hands_on_one_program() -> None:
    b = Build("dot", ("m",))
    x = b.buffer("x", "f32", ("m", 32), "input")
    w = b.buffer("w", "f32", (32,), "weight")
    p = b.buffer("p", "f32", (32,), "packed")
    y = b.buffer("y", "f32", ("m",), "output")
    with b.prepare():
        p[span(0, 32)] = w[span(0, 32)]
    with b.run(), b.parallel("i", 0, "m") as i:
        acc = b.let("acc", fma(x[i, span(0, 32)], p[span(0, 32)], fill(0.0, "f32", 32)))
        y[i] = b.let("s", sum_(acc))
    kernel = b.kernel()
    assert text(kernel) == (
        'kernel = "dot"\n'
        "m = dim\n"
        "x: f32[m, 32] = input\n"
        "w: f32[32] = weight\n"
        "p: f32[32] = packed\n"
        "y: f32[m] = output\n"
        "\n"
        "def prepare():\n"
        "    p[0:32] = w[0:32]\n"
        "\n"
        "def run():\n"
        "    for i in parallel(0, m, 1):\n"
        "        acc = fma(x[i, 0:32], p[0:32], fill(0.0, f32, 32))\n"
        "        s = sum(acc)\n"
        "        y[i] = s\n"
    )
    assert parse(text(kernel)) == kernel
