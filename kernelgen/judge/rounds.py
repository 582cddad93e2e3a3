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
    floats = [t.name for t in operator.by_role("input") if np.dtype(t.dtype).kind == "f"]
    if not floats:
        fresh = operator.sample(rng, test.dims, test.regime)
        return {**first, **{t.name: fresh[t.name] for t in operator.by_role("input")}}
    changed = dict(first)
    for name in floats:
        data = np.array(first[name])
        flat = data.reshape(-1)
        if flat.size:
            count = max(1, flat.size // 50)
            # Beyond the first elements, where a cheap fingerprint looks.
            at = flat.size - 1 - rng.integers(0, max(1, flat.size - flat.size // 4), size=count)
            flat[at] = -2.0 * flat[at] + np.asarray(rng.standard_normal(count), dtype=flat.dtype)
        changed[name] = data
    return changed


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
        if np.dtype(source.dtype).kind == "f" and sample[source.name].size:
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
