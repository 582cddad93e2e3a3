"""The rounds a kernel has to pass: which inputs at which sizes, and the proof that they can tell a
cheat from a kernel.

In: an operator, the timed sizes, a secret seed. Out: `Round` plans and their arrays.
Never here: the candidate; a test set is made and proven without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelgen.judge.compare import compare, poison_word, poisoned
from kernelgen.judge.feed import free_order
from kernelgen.ops.operator import REGIMES, Array, Operator

SCREENING = 3
"""Rounds before the first timing; they find most mistakes. The rest follow before anything is
accepted.
"""

TAILS = 4
ATTEMPTS = 5


@dataclass(frozen=True)
class Round:
    """One test: sizes, regime, which earlier round it nearly repeats (or None), and which end meets
    the guard page.
    """

    number: int
    dims: Mapping[str, int]
    regime: str
    twin_of: int | None = None


def generator(seed: bytes, *labels: object) -> np.random.Generator:
    """A random stream that nobody can predict without the seed."""
    text = "/".join(str(label) for label in labels).encode()
    digest = hashlib.blake2b(text, key=hashlib.sha256(seed).digest(), digest_size=32).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def plan(operator: Operator, timed: Sequence[Mapping[str, int]], seed: bytes) -> tuple[Round, ...]:
    """All regimes at the timed sizes, ragged and tail sizes around the first, and near repeats.

    `timed` is heaviest first; the regimes go round over it, so that every timed size has its rounds
    and the heaviest does not take all the time. The first `SCREENING` rounds are a nominal one, a
    tail and a structured one.
    """
    rng = generator(seed, "plan")
    tails = _tails(operator, timed[0], rng)
    heavy, light = timed[0], timed[-1]
    steps: list[tuple[Mapping[str, int], str]] = [(light, "nominal")]
    steps += [(tails[0], "nominal"), (heavy, "structured")]
    regimes = [regime for regime in REGIMES if regime not in ("nominal", "structured")]
    steps += [(timed[place % len(timed)], regime) for place, regime in enumerate(regimes)]
    steps += [
        (tail, regime)
        for tail, regime in zip(tails[1:], ("shifted", "integer_exact", "ragged"), strict=False)
    ]
    steps += [(heavy, "nominal")] if len(timed) > 1 else []
    steps += [({**light, name: 0}, "nominal") for name in empty_dims(operator)]
    steps.append((light, "nominal"))
    rounds = [Round(number, sizes, regime) for number, (sizes, regime) in enumerate(steps)]
    # Near repeats of the latest and of the very first inputs: whoever keeps answers keeps one of
    # the two.
    count = len(rounds)
    twins = (
        Round(count, light, "nominal", twin_of=count - 1),
        Round(count + 1, light, "nominal", twin_of=0),
    )
    return (*rounds, *twins)


def empty_dims(operator: Operator) -> tuple[str, ...]:
    """Sizes that may be 0, as the operator says in a class attribute of this name; none without."""
    return tuple(getattr(operator, "empty_dims", ()))


def arrays(operator: Operator, test: Round, seed: bytes, attempt: int = 0) -> dict[str, Array]:
    """The inputs and weights of one round; the same seed gives the same arrays."""
    if test.twin_of is None:
        rng = generator(seed, "round", test.number, attempt)
        return operator.sample(rng, test.dims, test.regime)
    first = operator.sample(generator(seed, "round", test.twin_of, 0), test.dims, test.regime)
    return _twin(operator, test, first, generator(seed, "twin", test.number, attempt))


def _twin(
    operator: Operator, test: Round, first: dict[str, Array], rng: np.random.Generator
) -> dict[str, Array]:
    """The first round with the same weights and a few input elements changed: exposes answers kept
    by fingerprint.
    """
    inputs = operator.by_role("input")
    floats = [t.name for t in inputs if np.dtype(t.dtype).kind == "f"]
    changed = dict(first)
    for name in floats or [t.name for t in inputs]:
        data = np.array(first[name])
        flat = data.reshape(-1)
        if data.dtype.kind == "f":
            _nudge(flat, rng)
        elif data.dtype.itemsize == 1 or free_order(data):
            _swap(flat, rng)
        changed[name] = data
    if any(not np.array_equal(changed[t.name], first[t.name], equal_nan=True) for t in inputs):
        return changed
    # Offsets and tables alone: another sample is the nearest there is.
    fresh = operator.sample(rng, test.dims, test.regime)
    return {**first, **{t.name: fresh[t.name] for t in inputs}}


def _late(size: int, count: int, rng: np.random.Generator) -> Array:
    """Places beyond the first quarter, for a cheap fingerprint looks at the beginning."""
    return size - 1 - rng.integers(0, max(1, size - size // 4), size=count)


def _nudge(flat: Array, rng: np.random.Generator) -> None:
    """Change a few floats; what is never negative stays so, infinities and NaN stay."""
    finite = np.isfinite(flat)
    if not finite.any():
        return
    at = _late(flat.size, max(1, flat.size // 50), rng)
    at = at[finite[at]]
    if bool((flat[finite] >= 0).all()):
        flat[at] *= np.asarray(rng.uniform(0.3, 0.7, size=at.size), dtype=flat.dtype)
    else:
        flat[at] = -2.0 * flat[at] + np.asarray(rng.standard_normal(at.size), dtype=flat.dtype)


def _swap(flat: Array, rng: np.random.Generator) -> None:
    """Let a few integers change places: every value stays a legal one."""
    if flat.size:
        at = np.unique(_late(flat.size, max(2, flat.size // 50), rng))
        flat[at] = flat[np.roll(at, 1)]


def proves(
    operator: Operator,
    sample: Mapping[str, Array],
    want: Mapping[str, Array],
    bound: Mapping[str, Array],
    *,
    exact: bool,
) -> bool:
    """Whether this round refuses a kernel that does nothing, one that writes zeros and one that
    copies its input.
    """
    word = poison_word(np.random.default_rng(int(sum(v.size for v in want.values()))))
    outputs = operator.by_role("output")
    shapes = {t.name: want[t.name].shape for t in outputs}
    nothing = {t.name: poisoned(shapes[t.name], t.dtype, word) for t in outputs}
    zeros = {t.name: np.zeros(shapes[t.name], t.dtype) for t in outputs}
    mutants = [nothing, zeros]
    for source in operator.by_role("input"):
        if sample[source.name].size:
            with np.errstate(invalid="ignore"):  # NaN in an input has no integer to become
                mutants.append(
                    {
                        t.name: np.resize(sample[source.name], shapes[t.name]).astype(t.dtype)
                        for t in outputs
                    }
                )
    return all(
        compare(mutant, want, bound, poison=word, exact=exact).reason is not None
        for mutant in mutants
    )


def tells(
    operator: Operator, want: Mapping[str, Array], bound: Mapping[str, Array], *, exact: bool
) -> frozenset[str]:
    """Outputs that this round would refuse if they alone held zeros: no output may be left to the
    others to prove.
    """
    found = set()
    for tensor in operator.by_role("output"):
        name = tensor.name
        zeros = {name: np.zeros(want[name].shape, tensor.dtype)}
        one = compare(zeros, {name: want[name]}, {name: bound[name]}, poison=1, exact=exact)
        if one.reason is not None:
            found.add(name)
    return frozenset(found)


def _tails(
    operator: Operator, dims: Mapping[str, int], rng: np.random.Generator
) -> list[Mapping[str, int]]:
    """Sizes around the timed ones (below, the smallest, a little above, below) that the operator
    can sample.
    """
    found: list[Mapping[str, int]] = []
    smallest = dict.fromkeys(dims, 1)
    for tries in range(200):
        if len(found) == TAILS:
            return found
        above = len(found) == 2
        sizes: Mapping[str, int] = {
            name: int(size + rng.integers(1, 18) if above else rng.integers(1, max(2, size)))
            for name, size in dims.items()
        }
        if tries == 1:
            sizes = smallest
        if _possible(operator, sizes):
            found.append(sizes)
    # Sizes that depend on each other so tightly that chance finds no others: the timed ones must
    # do.
    return found + [dims] * (TAILS - len(found))


def _possible(operator: Operator, sizes: Mapping[str, int]) -> bool:
    if len(sizes) < 2:
        return True  # one size alone may be any count from one up
    try:
        operator.sample(np.random.default_rng(0), sizes, "nominal")
    except ValueError:
        return False
    return True
