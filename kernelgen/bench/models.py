"""Whole models against the stock stacks: the numbers the product is about.

In: a package, its ONNX file, a tokenizer. Out: one row per case, in the format other tools read:
{suite, name, shape, dtype, threads, ours_us, peers, best_peer, ratio, ratio_ci, roofline_fraction,
correct, class}.
Never here: times from another run, another process or another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from kernelgen.bench.interleave import pinned, race, ratio_interval
from kernelgen.bench.peers import Ids, Peer, arrangements, open_peers
from kernelgen.graph import TextEncoder
from kernelgen.machine import Machine, describe
from kernelgen.package.loader import CompiledModel, load
from kernelgen.workload import docstring_sentences, tokenize

SINGLE_TOKENS = (8, 16, 32, 128)
BATCHES = (8, 32)

Row = dict[str, object]


@dataclass(frozen=True, eq=False)
class Case:
    """One thing to time: `samples` go in as one request."""

    name: str
    samples: tuple[Ids, ...]

    @property
    def tokens(self) -> int:
        return sum(len(one) for one in self.samples)


def cases(tokenizer: Path) -> tuple[Case, ...]:
    """Batch one at 8, 16, 32 and 128 tokens, and ragged batches of 8 and 32 real sentences."""
    # Every 16th sentence: neighbours come from one docstring and are alike in length.
    ids = tokenize(docstring_sentences(2000)[::16], tokenizer, 128)
    stream = np.concatenate([one[1:-1] for one in ids])
    found = []
    for tokens in SINGLE_TOKENS:
        one = np.concatenate([ids[0][:1], stream[: tokens - 2], ids[0][-1:]])
        found.append(Case(f"single_{tokens}", (one,)))
    found += [Case(f"ragged_{batch}", tuple(ids[:batch])) for batch in BATCHES]
    return tuple(found)


def run_models(
    package: Path,
    *,
    model: Path,
    tokenizer: Path,
    core: int = 0,
    seed: int = 0,
    quick: bool = False,
    machine: Machine | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Time the package against every installed stock stack, interleaved, one thread, pinned to
    `core`.

    `machine` with measured peaks saves measuring them again. Raises `PackageError`, `GraphError`,
    or `ValueError` for the core.
    """
    encoder = TextEncoder(str(model))
    rows: list[Row] = []
    with pinned(core), load(package) as ours:
        if ours.manifest["model"]["sha256"] != encoder.onnx.sha256:
            raise ValueError(f"package {package} was built from another model than {model}")
        facts = machine or describe()
        peers = open_peers(encoder)
        for case in cases(tokenizer):
            row = _row(case, encoder, ours, peers, facts, seed, quick)
            rows.append(row)
            if on_row is not None:
                on_row(row)
    return rows


def _row(
    case: Case,
    encoder: TextEncoder,
    ours: CompiledModel,
    peers: Mapping[str, Peer],
    machine: Machine,
    seed: int,
    quick: bool,
) -> Row:
    sides: dict[str, Callable[[], object]] = {"ours": partial(ours.run, case.samples)}
    for stack, peer in peers.items():
        for arrangement, batches in arrangements(case.samples).items():
            name = stack if len(case.samples) == 1 else f"{stack} {arrangement}"
            sides[name] = partial(_all_batches, peer, batches)
    rounds, calls = (5, 3) if quick else (25, 5)
    times = race(sides, rounds=rounds, calls=calls, seed=seed)
    mine = times.pop("ours")
    medians = {name: float(np.median(spent)) for name, spent in times.items()}
    best = min(medians, key=lambda name: medians[name]) if medians else None
    dims = {"n": len(case.samples), "tokens": case.tokens}
    roof = None
    if machine.peak_gflops_per_core:
        # Work over the peak of float32 multiply-adds; for short inputs the weights' bandwidth is
        # the lower roof.
        roof = encoder.flops(dims) / (machine.peak_gflops_per_core * 1e3) / float(np.median(mine))
    row: Row = {
        "suite": "models",
        "name": case.name,
        "shape": dims,
        "dtype": "float32",
        "threads": 1,
        "ours_us": round(float(np.median(mine)), 1),
        "peers": {name: round(value, 1) for name, value in medians.items()},
        "best_peer": best,
        "ratio": None,
        "ratio_ci": None,
        "roofline_fraction": None if roof is None else round(roof, 3),
        "correct": correct(case, encoder, ours),
        "class": "measured",
    }
    if best is not None:
        ratio, low, high = ratio_interval(times[best], mine, seed=seed)
        row["ratio"] = round(ratio, 3)
        row["ratio_ci"] = [round(low, 3), round(high, 3)]
    return row


def _all_batches(peer: Peer, batches: Sequence[tuple[Ids, Ids]]) -> None:
    for ids, mask in batches:
        peer(ids, mask)


def correct(case: Case, encoder: TextEncoder, ours: CompiledModel) -> bool:
    """Whether the package's answer lies within the float32 error bound of the float64 oracle."""
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in case.samples])]).astype(np.int64)
    arrays = {"ids": np.concatenate(case.samples), "offsets": offsets}
    dims = {"n": len(case.samples), "tokens": case.tokens}
    wanted = encoder.oracle(arrays, dims)["embeddings"]
    bound = encoder.error_bound(arrays, dims)["embeddings"]
    return bool((np.abs(ours.run(case.samples) - wanted) <= bound).all())
