"""`run`: a package over token ids from a file.

In: a package, an `.npz` of samples (`ids`, `offsets`). Out: embeddings, printed in brief or written
to `.npz`.
Never here: tokenising.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from kernelgen.commands import show
from kernelgen.package import load
from kernelgen.workload import load_samples

NAME = "run"
HELP = "run a package over token ids from an .npz file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", type=Path, help="package directory")
    parser.add_argument("--input", type=Path, required=True, help=".npz with ids and offsets")
    parser.add_argument("--output", type=Path, help=".npz to write the embeddings to")
    parser.add_argument("--batch", type=int, default=32, help="sequences per call")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    if arguments.batch < 1:
        raise ValueError(f"--batch: got {arguments.batch}, wanted 1 or more")
    samples = load_samples(arguments.input)
    with load(arguments.package, claimed=True) as model:
        began = time.perf_counter()
        pieces = [
            model.run(samples[at : at + arguments.batch])
            for at in range(0, len(samples), arguments.batch)
        ]
        seconds = time.perf_counter() - began
    embeddings = np.concatenate(pieces)
    if arguments.output is not None:
        np.savez(arguments.output, embeddings=embeddings)
    facts = {
        "sequences": len(samples),
        "tokens": int(sum(len(ids) for ids in samples)),
        "dimensions": int(embeddings.shape[1]),
        "seconds": round(seconds, 6),
        "output": None if arguments.output is None else str(arguments.output),
    }
    if arguments.json:
        show.document(facts)
    else:
        show.pairs(facts)
    return 0
