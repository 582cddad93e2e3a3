"""Comparison against the oracle, and the proof that a test set refuses cheats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen.attacks.scale import Scale
from kernelgen.judge import rounds
from kernelgen.judge.compare import compare, poison_word, poisoned
from kernelgen.ops import MeanPool
from kernelgen.ops.gemm import GemmBias
from kernelgen.ops.operator import REGIMES, Array

POISON = 0x7FC12345


def _check(got: object, want: object, bound: float = 1e-6, *, exact: bool = False) -> str | None:
    return compare(
        {"y": np.asarray(got, dtype=np.float32)},
        {"y": np.asarray(want, dtype=np.float64)},
        {"y": np.full(np.shape(want), bound)},
        poison=POISON,
        exact=exact,
    ).reason


def test_a_match_within_the_bound_passes_and_reports_its_ratio() -> None:
    result = compare(
        {"y": np.array([1.0, 2.5], np.float32)},
        {"y": np.array([1.0, 2.0])},
        {"y": np.array([1.0, 1.0])},
        poison=POISON,
    )
    assert result.reason is None
    assert result.error_ratio == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("got", "want", "reason"),
    [
        ([1.0, 2.1], [1.0, 2.0], "wrong_output"),
        ([1.0, np.nan], [1.0, 2.0], "not_finite"),
        ([1.0, np.nan], [1.0, np.nan], "not_finite"),
        ([1.0, np.inf], [1.0, 2.0], "not_finite"),
        ([1.0, -np.inf], [1.0, -np.inf], None),
        ([1.0, np.inf], [1.0, -np.inf], "not_finite"),
        ([1.0, 3.0], [1.0, -np.inf], "wrong_output"),
        ([], [], None),
    ],
)
def test_special_values(got: list[float], want: list[float], reason: str | None) -> None:
    assert _check(got, want) == reason


def test_poison_that_is_still_there_is_found_even_in_one_element() -> None:
    got = np.zeros(100, np.float32)
    got[41:42] = poisoned((1,), "float32", POISON)
    result = compare({"y": got}, {"y": np.zeros(100)}, {"y": np.ones(100)}, poison=POISON)
    assert result.reason == "not_written"
    assert "y[41]" in result.detail


def test_integers_must_be_exact_where_float32_is() -> None:
    assert _check([3.0], [3.0], 1.0, exact=True) is None
    assert _check([3.0000002], [3.0], 1.0, exact=True) == "wrong_output"
    # Not an integer result: rounding is allowed again.
    assert _check([3.5000002], [3.5], 1.0, exact=True) is None


def test_a_wrong_shape_is_a_wrong_output() -> None:
    assert _check([1.0], [1.0, 2.0]) == "wrong_output"


@given(st.integers(0, 2**32 - 1))
def test_poison_is_always_a_nan_with_a_payload(seed: int) -> None:
    word = poison_word(np.random.default_rng(seed))
    value = np.array([word], np.uint32).view(np.float32)
    assert np.isnan(value).all()
    assert word & 0x3FFFFF


@pytest.mark.parametrize("operator", [Scale(), GemmBias(24, 16), MeanPool(8)], ids=lambda o: o.name)
def test_the_plan_covers_all_regimes_and_tails(operator: Scale) -> None:
    dims = {"m": 9, "n": 4, "tokens": 31}
    sizes = {name: dims[name] for name in operator.dims}
    plan = rounds.plan(operator, (sizes,), b"secret")
    assert {test.regime for test in plan} == set(REGIMES)
    assert sum(test.dims == sizes for test in plan) >= 8
    assert len({tuple(test.dims.items()) for test in plan}) >= 3
    assert sum(test.twin_of is not None for test in plan) == 2
    assert len(plan) >= 12


def test_the_same_seed_gives_the_same_rounds_and_another_gives_others() -> None:
    operator = Scale()
    test = rounds.plan(operator, ({"n": 50},), b"one")[0]
    first = rounds.arrays(operator, test, b"one")["x"]
    assert np.array_equal(first, rounds.arrays(operator, test, b"one")["x"])
    assert not np.array_equal(first, rounds.arrays(operator, test, b"two")["x"])


def test_a_twin_differs_little_and_not_at_the_start() -> None:
    operator = Scale()
    plan = rounds.plan(operator, ({"n": 400},), b"one")
    twin = plan[-1]
    first = rounds.arrays(operator, plan[0], b"one")["x"]
    second = rounds.arrays(operator, twin, b"one")["x"]
    changed = np.flatnonzero(first != second)
    assert 0 < len(changed) <= 8
    assert changed.min() >= 100


class _Blind(Scale):
    """A scale operator whose bound forgives everything: no test of it proves anything."""

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": np.full(dims["n"], 1e9)}


def test_a_test_set_that_forgives_cheats_does_not_prove_itself() -> None:
    for operator, proves in ((Scale(), True), (_Blind(), False)):
        sample = operator.sample(np.random.default_rng(0), {"n": 64}, "nominal")
        want = operator.oracle(sample, {"n": 64})
        bound = operator.error_bound(sample, {"n": 64})
        assert rounds.proves(operator, sample, want, bound, exact=False) is proves
