"""Sequence operators against the reports of what went wrong in kernels like them: each row names
the report, the case is what it takes to show the fault.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from kernelgen.emit import flags, source
from kernelgen.emit.part import BAD_LENGTH, BAD_OFFSETS, BAD_PAGE
from kernelgen.machine import describe
from kernelgen.ops.attention_decode import PAGE, AttentionDecode, AttentionDecodePaged
from kernelgen.ops.attention_prefill import AttentionPrefill
from kernelgen.ops.moe import Moe
from kernelgen.ops.operator import Array, Operator, offsets_of
from kernelgen.ops.selective_scan import SelectiveScan
from kernelgen.package.native import Block, Native
from kernelgen.schedule import space
from kernelgen.targets.cpu import compile_shared

HERE = describe(measure=False)
Arrays = dict[str, Array]
Dims = Mapping[str, int]


@cache
def library(operator: Operator) -> Native:
    schedule = space(operator, HERE).default()
    place = Path(mkdtemp()) / "kernel.so"
    built = compile_shared(source(operator, schedule), flags(HERE, schedule), place)
    assert built.path is not None, built.stderr
    return Native(built.path)


def call(operator: Operator, dims: Dims, arrays: Arrays) -> tuple[int, Arrays]:
    native = library(operator)
    sizes = np.array([dims[name] for name in operator.dims], np.int64)
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    packed = native.prepare([kept[t.name] for t in operator.by_role("weight")], sizes)
    scratch = Block(native.scratch_bytes(sizes))
    scratch.bytes[:] = 0xFF  # NaN wherever a kernel reads what it has not written
    outs = {
        t.name: np.full(t.sizes(dims), np.nan, np.dtype(t.dtype))
        for t in operator.by_role("output")
    }
    ins = [kept[t.name] for t in operator.by_role("input")]
    pointers = [
        (ctypes.c_void_p * len(several))(*(array.ctypes.data for array in several))
        for several in (ins, list(outs.values()))
    ]
    code = native.kernel(
        *map(ctypes.addressof, pointers), sizes.ctypes.data, packed.address, scratch.address
    )
    return code, outs


def right(operator: Operator, dims: Dims, arrays: Arrays) -> Arrays:
    """Run, compare with the oracle, give the outputs."""
    code, outs = call(operator, dims, arrays)
    assert code == 0
    want, bound = operator.oracle(arrays, dims), operator.error_bound(arrays, dims)
    for name, got in outs.items():
        error = np.abs(got.astype(np.float64) - want[name])
        assert np.all(error <= bound[name]), f"{name}: worst {np.nanmax(error)}"
    return outs


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


# ---- prefill ------------------------------------------------------------------------------------

CAUSAL = AttentionPrefill(6, 2, 32, 32**-0.5, 1)
FULL = AttentionPrefill(2, 2, 32, 32**-0.5, 0)


def ragged(operator: AttentionPrefill, *lengths: int) -> tuple[Dims, Arrays]:
    dims = {"n": len(lengths), "tokens": sum(lengths)}
    arrays = operator.sample(rng(), dims, "nominal")
    return dims, {**arrays, "offsets": offsets_of(np.array(lengths, np.int64))}


LENGTHS = [
    ("kernelbench.com DEVLOG 2026-08-07: uniform lengths assumed", (1, 40, 2, 17, 33)),
    ("thunlp/TritonBench#12: tails written out of bounds", (15,)),
    ("thunlp/TritonBench#12: one past a vector", (17,)),
    ("oneDNN#5717: a last piece that is no whole piece", (16, 5)),
    ("onnxruntime#28695: a tiled kernel meets one token", (1,)),
    ("onnxruntime#28695: many sequences of one token", (1, 1, 1, 1, 1)),
    ("E39: one long among short ones", (1, 1, 97, 1)),
]


@pytest.mark.parametrize("operator", [CAUSAL, FULL], ids=["causal", "full"])
@pytest.mark.parametrize(("report", "lengths"), LENGTHS)
def test_ragged_lengths(report: str, lengths: tuple[int, ...], operator: AttentionPrefill) -> None:
    right(operator, *ragged(operator, *lengths))


def test_the_first_token_of_a_causal_sequence_sees_itself_alone() -> None:
    dims, arrays = ragged(CAUSAL, 5, 20)
    out = right(CAUSAL, dims, arrays)["out"]
    for first in (0, 5):
        np.testing.assert_array_equal(out[first], np.repeat(arrays["v"][first], 3, axis=0))


@pytest.mark.parametrize("operator", [CAUSAL, FULL], ids=["causal", "full"])
def test_nan_of_one_sequence_stays_in_it(operator: AttentionPrefill) -> None:
    """oneDNN#5717: NaN leaks across rows that share a padded tile."""
    dims, arrays = ragged(operator, 9, 7, 21)
    clean = right(operator, dims, arrays)["out"]
    for name in "qkv":
        arrays[name][9:16] = np.nan
    code, outs = call(operator, dims, arrays)
    assert code == 0
    np.testing.assert_array_equal(outs["out"][:9], clean[:9])
    np.testing.assert_array_equal(outs["out"][16:], clean[16:])
    assert np.isnan(outs["out"][9:16]).all()


def test_what_follows_a_causal_token_does_not_reach_it() -> None:
    """A mask added to NaN is NaN: what is not seen must not be multiplied either."""
    dims, arrays = ragged(CAUSAL, 30)
    clean = right(CAUSAL, dims, arrays)["out"]
    arrays["k"][23:], arrays["q"][23:] = np.nan, np.nan
    code, outs = call(CAUSAL, dims, arrays)
    assert code == 0
    np.testing.assert_array_equal(outs["out"][:18], clean[:18])


@pytest.mark.parametrize("operator", [CAUSAL, FULL], ids=["causal", "full"])
def test_scores_far_below_zero_still_weigh(operator: AttentionPrefill) -> None:
    """buddy-mlir#837: a block whose scores are all hidden gives exp(-inf + inf) = NaN."""
    dims, arrays = ragged(operator, 35, 3)
    arrays["q"] = np.full_like(arrays["q"], 300.0)
    arrays["k"] = -300.0 - np.abs(arrays["k"])
    right(operator, dims, arrays)


OFFSETS = [
    ("begins late", [1, 5, 12]),
    ("begins below zero", [-3, 5, 12]),
    ("an empty sequence", [0, 5, 5, 12]),
    ("falls", [0, 7, 5, 12]),
    ("ends early", [0, 5, 11]),
    ("ends late", [0, 5, 1 << 40]),
    ("overflows", [0, -(1 << 62), 12]),
]


@pytest.mark.parametrize(("fault", "offsets"), OFFSETS)
def test_hostile_offsets_are_refused(fault: str, offsets: list[int]) -> None:
    dims = {"n": len(offsets) - 1, "tokens": 12}
    arrays = CAUSAL.sample(rng(), dims, "nominal")
    arrays["offsets"] = np.array(offsets, np.int64)
    assert call(CAUSAL, dims, arrays)[0] == BAD_OFFSETS


# ---- decode -------------------------------------------------------------------------------------

DECODE = AttentionDecode(6, 2, 32, 32**-0.5)
PAGED = AttentionDecodePaged(6, 2, 32, 32**-0.5)


def test_every_length_from_one_to_the_last() -> None:
    """Anchors section 7: lengths 1..max; what lies past a length is of another conversation."""
    most = 37
    dims = {"n": most, "max_len": most}
    arrays = DECODE.sample(rng(), dims, "nominal")
    arrays["lengths"] = np.arange(1, most + 1)
    for row in range(most):
        arrays["key_cache"][row, row:] = np.nan
        arrays["value_cache"][row, row:] = np.nan
    right(DECODE, dims, arrays)


@pytest.mark.parametrize("most", [1, 2, 3, 15, 16, 17, 31])
def test_caches_shorter_than_a_vector_and_around_it(most: int) -> None:
    dims = {"n": 2, "max_len": most}
    arrays = DECODE.sample(rng(), dims, "nominal")
    arrays["lengths"] = np.array([most, max(1, most - 1)])
    right(DECODE, dims, arrays)


@pytest.mark.parametrize("length", [0, -1, 38, 1 << 40, -(1 << 63)])
def test_hostile_lengths_are_refused(length: int) -> None:
    dims = {"n": 2, "max_len": 37}
    arrays = DECODE.sample(rng(), dims, "nominal")
    arrays["lengths"] = np.array([5, length])
    assert call(DECODE, dims, arrays)[0] == BAD_LENGTH


@pytest.mark.parametrize("heads", [2, 4, 6, 16])
def test_cache_bytes_count_once_for_all_query_heads(heads: int) -> None:
    """mlx-lm#1679: keys and values were read once per query head."""
    dims = {"n": 1, "max_len": 512}
    operator = AttentionDecode(heads, 2, 32, 0.2)
    caches = 2 * 4 * 511 * 2 * 32
    around = 2 * 4 * heads * 32 + 2 * 4 * 2 * 32 + 8
    assert operator.bytes_moved(dims) == caches + around


def paged() -> tuple[Dims, Arrays]:
    dims = {"n": 3, "pages": 9, "max_pages": 3}
    arrays = PAGED.sample(rng(), dims, "nominal")
    arrays["lengths"] = np.array([48, 17, 1])  # the second needs one page, the third none
    return dims, arrays


def test_pages_in_any_order_and_shared() -> None:
    dims, arrays = paged()
    right(PAGED, dims, arrays)
    arrays["table"][1] = arrays["table"][0]  # two conversations with one beginning
    right(PAGED, dims, arrays)


def test_entries_past_the_cached_positions_are_not_followed() -> None:
    dims, arrays = paged()
    arrays["table"][1, 1:], arrays["table"][2] = 1 << 30, -(1 << 31)
    right(PAGED, dims, arrays)


@pytest.mark.parametrize("page", [-1, 9, 1 << 30, -(1 << 31)])
@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 0)])
def test_pages_outside_the_pool_are_refused(page: int, place: tuple[int, int]) -> None:
    dims, arrays = paged()
    arrays["table"][place] = page
    assert call(PAGED, dims, arrays)[0] == BAD_PAGE


def test_pages_laid_end_to_end_are_the_contiguous_cache() -> None:
    dims = {"n": 1, "pages": 3, "max_pages": 3}
    arrays = PAGED.sample(rng(), dims, "nominal")
    arrays["table"] = np.arange(3, dtype=np.int32)[None]
    arrays["lengths"] = np.array([41])
    got = right(PAGED, dims, arrays)["out"]
    flat = {name: arrays[name].reshape(1, 3 * PAGE, 2, 32) for name in ("key_cache", "value_cache")}
    same = right(DECODE, {"n": 1, "max_len": 3 * PAGE}, {**arrays, **flat})["out"]
    np.testing.assert_array_equal(got, same)


# ---- mixture of experts -------------------------------------------------------------------------

SWIGLU = Moe(40, 56, 5, "swiglu", 1)
PLAIN_GELU = Moe(40, 56, 5, "gelu", 0)


@dataclass(frozen=True)
class Routing:
    report: str
    logits: Callable[[Array], Array]


def _one_pair(logits: Array) -> Array:
    return np.tile(np.array([0, 9, 0, 8, 0], np.float32), (len(logits), 1))


def _last_alone(logits: Array) -> Array:
    return logits + np.array([0, 0, 0, 0, 80], np.float32)


def _far_apart(logits: Array) -> Array:
    return logits * np.float32(1e4)


ROUTINGS = [
    Routing("kernelbench.com DEVLOG 2026-08-07 (E39): balanced experts assumed", _one_pair),
    Routing("E39: one expert takes every row, some take none", _last_alone),
    Routing("ties: of equal logits the lower expert wins", np.zeros_like),
    Routing("gates that underflow", _far_apart),
    Routing("negative zero ties with zero", lambda logits: np.zeros_like(logits) * -1.0),
]


@pytest.mark.parametrize("operator", [SWIGLU, PLAIN_GELU], ids=["swiglu", "gelu"])
@pytest.mark.parametrize("rows", [1, 6, 23])
@pytest.mark.parametrize("case", ROUTINGS, ids=lambda case: case.report)
def test_routings(case: Routing, rows: int, operator: Moe) -> None:
    arrays = operator.sample(rng(), {"m": rows}, "nominal")
    arrays["logits"] = case.logits(arrays["logits"])
    right(operator, {"m": rows}, arrays)


def test_an_expert_nobody_chose_touches_nothing() -> None:
    arrays = SWIGLU.sample(rng(), {"m": 7}, "nominal")
    arrays["logits"] = _one_pair(arrays["logits"])
    for name in ("w1", "w3", "w2"):
        arrays[name][[0, 2, 4]] = np.nan
    right(SWIGLU, {"m": 7}, arrays)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_choose_experts_there_are(wrong: float) -> None:
    arrays = SWIGLU.sample(rng(), {"m": 5}, "nominal")
    clean = right(SWIGLU, {"m": 5}, arrays)["out"]
    arrays["logits"][2] = wrong
    code, outs = call(SWIGLU, {"m": 5}, arrays)
    assert code == 0
    np.testing.assert_array_equal(outs["out"][[0, 1, 3, 4]], clean[[0, 1, 3, 4]])


# ---- selective scan -----------------------------------------------------------------------------

SCAN = SelectiveScan(20, 16)

STEPS = [
    ("E39: short decay assumed; the first input is still there at the end", -12.0, 0.1),
    ("E39: long memory assumed; every step forgets all", 60.0, 1.0),
    ("softplus overflows where exp does", 0.0, 90.0),
    ("softplus of a number far below zero is not zero", -30.0, 1.0),
]


@pytest.mark.parametrize(("report", "centre", "spread"), STEPS)
def test_short_and_long_memories(report: str, centre: float, spread: float) -> None:
    dims = {"length": 300}
    arrays = SCAN.sample(rng(), dims, "nominal")
    arrays["bias"] = np.full_like(arrays["bias"], centre)
    arrays["delta"] = arrays["delta"] * np.float32(spread)
    right(SCAN, dims, arrays)


def test_the_first_input_reaches_the_end_of_a_long_chain() -> None:
    dims = {"length": 400}
    arrays = SCAN.sample(rng(), dims, "ragged")
    kept = right(SCAN, dims, arrays)["after"]
    arrays["x"][0] += 8.0
    assert np.abs(right(SCAN, dims, arrays)["after"] - kept).max() > 1e-4


@pytest.mark.parametrize("cut", [1, 17, 49])
def test_a_scan_cut_in_two_carries_its_state(cut: int) -> None:
    """Anchors section 7: state carry. The same steps in the same order give the same bits."""
    arrays = SCAN.sample(rng(), {"length": 50}, "nominal")
    whole = right(SCAN, {"length": 50}, arrays)
    rows = ("x", "delta", "b", "c")
    first = {**arrays, **{name: arrays[name][:cut] for name in rows}}
    begun = right(SCAN, {"length": cut}, first)
    second = {**arrays, **{name: arrays[name][cut:] for name in rows}, "before": begun["after"]}
    ended = right(SCAN, {"length": 50 - cut}, second)
    np.testing.assert_array_equal(np.concatenate([begun["y"], ended["y"]]), whole["y"])
    np.testing.assert_array_equal(ended["after"], whole["after"])
