"""Every kind of argument an operator may have, each with an honest kernel and with the mistake that
is easy to make there.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kernelgen.attacks.small import CodeProduct, Largest, Lookup, Masked, PaddedSum, RowsOf
from kernelgen.attacks.suite import folder
from kernelgen.judge import Candidate, Verdict, judge, rounds
from kernelgen.judge.compare import compare, disagrees, poison_word, poisoned, still_poisoned
from kernelgen.judge.feed import Feed
from kernelgen.machine import Machine, describe
from kernelgen.ops.operator import Operator
from kernelgen.targets.cpu import compile_shared

CORE = min(os.sched_getaffinity(0))
PRELUDE = (folder() / "kernel.h").read_text()
HEAD = """int kernel(const void *const *in, void *const *out, const int64_t *dim,
           const void *packed, void *scratch) { (void)scratch, (void)packed; int64_t n = dim[0];
"""
PLAIN = "NOTHING_PACKED\nNO_SCRATCH\n" + HEAD


def _packs(size: int) -> str:
    return (
        f"size_t packed_bytes(const int64_t *dim) {{ (void)dim; return {size}; }}\n"
        "int prepare(const void *const *weight, const int64_t *dim, void *packed) { (void)dim;\n"
        f"  for (int i = 0; i < {size}; i++) ((char *)packed)[i] = ((const char *)weight[0])[i];\n"
        "  return 0; }\nNO_SCRATCH\n" + HEAD
    )


PRODUCT = (
    _packs(24 * 8)
    + """const uint8_t *a = in[0]; const int8_t *w = packed; int32_t *y = out[0];
  for (int64_t i = 0; i < n; i++) for (int j = 0; j < 8; j++) { SUM sum = 0;
    for (int k = 0; k < 24; k++) sum = ADD; y[i * 8 + j] = sum; } return 0; }"""
)
RIGHT_SUM = PRODUCT.replace("SUM", "int32_t").replace("ADD", "sum + a[i * 24 + k] * w[k * 8 + j]")
# oneDNN#1805: pairs of u8 x s8 products saturate in 16 bits.
SATURATES = PRODUCT.replace("SUM", "int32_t").replace(
    "ADD",
    "({ int p = a[i * 24 + k] * w[k * 8 + j] + a[i * 24 + k + 1] * w[(k + 1) * 8 + j]; k++;"
    " sum + (p > 32767 ? 32767 : p < -32768 ? -32768 : p); })",
)
LARGEST = (
    PLAIN
    + """const float *x = in[0]; float *v = out[0]; int64_t *p = out[1];
  for (int64_t i = 0; i < n; i++) { int64_t best = 0; for (int64_t j = 1; j < 19; j++)
    if (x[i * 19 + j] OP x[i * 19 + best]) best = j;
    v[i] = x[i * 19 + best]; p[i] = PLACE; } return 0; }"""
)
MASKED = (
    PLAIN
    + """const float *x = in[0]; float *y = out[0];
  for (int64_t i = 0; i < n; i++) y[i] = x[i] >= 0 ? 2 * x[i] : OTHER; return 0; }"""
)
PADDED = (
    PLAIN
    + """const float *x = in[0]; float *y = out[0];
  for (int64_t i = 0; i < n; i++) { float s = 0; for (int j = 0; j < 12; j++) ADD; y[i] = s; }
  return 0; }"""
)
LOOKUP = (
    _packs(256)
    + """const uint8_t *c = in[0], *t = packed; uint8_t *y = out[0];
  for (int64_t i = 0; i < n; i++) y[i] = VALUE; return 0; }"""
)
ROWS = (
    _packs(50 * 4 * 8)
    + """const int32_t *r = in[0]; const double *t = packed; double *y = out[0];
  for (int64_t i = 0; i < n; i++) for (int j = 0; j < 4; j++) y[i * 4 + j] = VALUE; return 0; }"""
)

CASES = [
    ("8-bit in, 32-bit out", CodeProduct(24, 8), {"m": 60}, RIGHT_SUM, "accepted"),
    ("saturates (oneDNN#1805)", CodeProduct(24, 8), {"m": 60}, SATURATES, "wrong_output"),
    (
        "two outputs of two kinds",
        Largest(19),
        {"m": 300},
        LARGEST.replace("OP", ">").replace("PLACE", "best"),
        "accepted",
    ),
    (
        "the last of equal ones",
        Largest(19),
        {"m": 300},
        LARGEST.replace("OP", ">=").replace("PLACE", "best"),
        "wrong_output",
    ),
    (
        "zeros in the second output only",
        Largest(19),
        {"m": 300},
        LARGEST.replace("OP", ">").replace("PLACE", "0"),
        "wrong_output",
    ),
    (
        "second output left alone",
        Largest(19),
        {"m": 300},
        LARGEST.replace("OP", ">").replace("p[i] = PLACE", "(void)p"),
        "not_written",
    ),
    (
        "minus infinity where it belongs",
        Masked(),
        {"n": 999},
        MASKED.replace("OTHER", "-__builtin_inff()"),
        "accepted",
    ),
    (
        "plus infinity",
        Masked(),
        {"n": 999},
        MASKED.replace("OTHER", "__builtin_inff()"),
        "not_finite",
    ),
    (
        "a very small number",
        Masked(),
        {"n": 999},
        MASKED.replace("OTHER", "-1e38f"),
        "wrong_output",
    ),
    (
        "NaN in the padding",
        PaddedSum(16, 12),
        {"m": 200},
        PADDED.replace("ADD", "s += x[i * 16 + j]"),
        "accepted",
    ),
    (
        "multiplies the padding by zero (oneDNN#5717)",
        PaddedSum(16, 12),
        {"m": 200},
        PADDED.replace("j < 12", "j < 16").replace("ADD", "s += x[i * 16 + j] * (j < 12)"),
        "not_finite",
    ),
    ("bytes in, bytes out", Lookup(), {"n": 5000}, LOOKUP.replace("VALUE", "t[c[i]]"), "accepted"),
    (
        "one code wrong",
        Lookup(),
        {"n": 5000},
        LOOKUP.replace("VALUE", "t[c[i] == 77 ? 78 : c[i]]"),
        "wrong_output",
    ),
    (
        "bytes left alone",
        Lookup(),
        {"n": 5000},
        LOOKUP.replace("y[i] = VALUE", "(void)y"),
        "not_written",
    ),
    (
        "indices in, float64 out",
        RowsOf(50, 4),
        {"m": 400},
        ROWS.replace("VALUE", "t[r[i] * 4 + j]"),
        "accepted",
    ),
    (
        "float64 through float32",
        RowsOf(50, 4),
        {"m": 400},
        ROWS.replace("VALUE", "(float)t[r[i] * 4 + j] * 1.0000001f"),
        "wrong_output",
    ),
]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _judge(
    operator: Operator, dims: dict[str, int], text: str, machine: Machine, work: Path
) -> Verdict:
    source = PRELUDE + text
    outcome = compile_shared(source, ("-O2",), work / "kernel.so")
    assert outcome.path is not None, outcome.stderr
    return judge(
        Candidate("kernel", outcome.path, (source,), ("-O2",)),
        operator,
        dims,
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
        limit_s=2.0,
    )


@pytest.mark.parametrize(
    ("operator", "dims", "text", "reason"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_kinds_of_arguments(
    operator: Operator,
    dims: dict[str, int],
    text: str,
    reason: str,
    machine: Machine,
    tmp_path: Path,
) -> None:
    verdict = _judge(operator, dims, text, machine, tmp_path)
    assert verdict.reason == reason, verdict


@pytest.mark.parametrize("operator", [CodeProduct(6, 5), Masked()], ids=lambda o: o.name)
def test_an_operator_that_allows_size_0_gets_a_round_of_it(operator: Operator) -> None:
    (dim,) = operator.dims
    plan = rounds.plan(operator, ({dim: 40},), b"s")
    assert sum(test.dims[dim] == 0 for test in plan) == 1
    assert plan[-1].twin_of == 0
    assert plan[plan[-2].twin_of or 0].dims == {dim: 40}
    others = rounds.plan(Largest(3), ({"m": 40},), b"s")
    assert all(test.dims["m"] > 0 for test in others)


def test_a_kernel_that_fails_at_size_0_is_refused(machine: Machine, tmp_path: Path) -> None:
    text = MASKED.replace("for (int64_t i = 0; i < n; i++)", "int64_t i = 0; do").replace(
        "OTHER;", "-__builtin_inff(); while (++i < n);"
    )
    verdict = _judge(Masked(), {"n": 99}, text, machine, tmp_path)
    assert verdict.reason == "out_of_bounds", verdict


@pytest.mark.parametrize(
    "operator", [CodeProduct(30, 5), Lookup(), RowsOf(40, 3), PaddedSum(9, 5)], ids=lambda o: o.name
)
def test_twins_and_fed_inputs_differ_and_stay_legal(operator: Operator) -> None:
    (dim,) = operator.dims
    plan = rounds.plan(operator, ({dim: 300},), b"one")
    name = operator.by_role("input")[0].name
    first = rounds.arrays(operator, plan[0], b"one")[name]
    twin = rounds.arrays(operator, plan[-1], b"one")[name]
    assert not np.array_equal(first, twin, equal_nan=True)
    same = (first == twin) | ((first != first) & (twin != twin))
    assert same.mean() > 0.9
    assert first.dtype == twin.dtype
    feed = Feed(operator, {dim: 300}, np.random.default_rng(1))
    seen = [feed.next()[0] for _ in range(12)]
    assert len({contents.tobytes() for contents in seen}) == 12
    for contents in seen:
        assert contents.dtype == first.dtype
        assert np.array_equal(np.isfinite(contents), np.isfinite(first))
        if contents.dtype.kind in "iu":
            assert 0 <= contents.min() <= contents.max() <= {"rows": 39}.get(name, 255)


@pytest.mark.parametrize(
    ("got", "want", "bound", "reason"),
    [
        ([1, 2], [1.0, 2.0], 0.0, None),
        ([1, 3], [1.0, 2.0], 0.9, "wrong_output"),
        ([1, 3], [1.0, 2.0], 1.0, None),
        ([2**62 + 1], np.array([2**62 + 1]), 0.0, None),
        ([2**62 + 1], np.array([2**62]), 0.0, "wrong_output"),
        ([-(2**63)], np.array([2**63 - 1]), 0.0, "wrong_output"),
    ],
)
def test_integers_are_compared_as_integers(
    got: list[int], want: object, bound: float, reason: str | None
) -> None:
    wanted = np.asarray(want)
    result = compare(
        {"y": np.array(got, np.int64)},
        {"y": wanted},
        {"y": np.full(wanted.shape, bound)},
        poison=0x7FC12345,
    )
    assert result.reason == reason


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32", "float64"])
def test_poison_is_seen_in_every_type(dtype: str) -> None:
    left = poisoned((40,), dtype, 0x7FC54321)
    assert still_poisoned(left, 0x7FC54321).all()
    assert not still_poisoned(np.ones(40, dtype), 0x7FC54321).any()


def test_poison_is_no_likely_integer() -> None:
    words = [poison_word(np.random.default_rng(seed)) for seed in range(200)]
    assert min(np.array(words, np.uint32).view(np.int32)) > 2_000_000_000
    assert len(set(words)) > 190


def test_answers_are_like_the_incumbents_or_a_case_for_the_oracle() -> None:
    every = slice(None)
    near = np.array([1.0, 2.0, -np.inf], np.float32)
    assert not disagrees(near * np.float32(1.0001), near, every)
    assert disagrees(near + 1, near, every)
    assert disagrees(np.array([1.0, -np.inf, 2.0], np.float32), near, every)
    assert disagrees(np.array([np.nan, 2.0, -np.inf], np.float32), near, every)
    assert disagrees(np.array([1, 2]), np.array([1, 3]), every)
    assert not disagrees(np.array([1, 2]), np.array([1, 2]), every)


def test_an_output_that_no_round_proves_is_named() -> None:
    operator = Largest(7)
    sample = operator.sample(np.random.default_rng(0), {"m": 9}, "nominal")
    want = operator.oracle(sample, {"m": 9})
    bound = operator.error_bound(sample, {"m": 9})
    assert rounds.tells(operator, want, bound, exact=False) == {"value", "place"}
    want["place"] = np.zeros(9, np.int64)
    assert rounds.tells(operator, want, bound, exact=False) == {"value"}
