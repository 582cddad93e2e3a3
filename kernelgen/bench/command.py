"""`python -m kernelgen bench`: times a package against the stock stacks and writes the rows.

In: parsed arguments. Out: a table for people on standard output, JSON rows in a file, an exit code.
Never here: a number that was not measured in this run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import cast

from kernelgen.bench.models import Row, run_models
from kernelgen.graph import GraphError
from kernelgen.package.manifest import PackageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; `--threads` exists so that the promise of one thread can be
    stated.
    """
    parser.add_argument("--suite", choices=["models"], default="models")
    parser.add_argument("--package", type=Path, required=True, help="kernel package directory")
    parser.add_argument("--model", type=Path, required=True, help="the ONNX file it was built from")
    parser.add_argument("--tokenizer", type=Path, required=True, help="its tokenizer.json")
    parser.add_argument("--threads", type=int, choices=[1], default=1)
    parser.add_argument("--core", type=int, default=0, help="core to pin to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, wider intervals")
    parser.add_argument("--json", type=Path, help="write the rows here")


def main(args: argparse.Namespace) -> int:
    """0 when every answer is correct, 1 when one is not, 2 for wrong use (one line on standard
    error).
    """
    try:
        rows = run_models(
            args.package,
            model=args.model,
            tokenizer=args.tokenizer,
            core=args.core,
            seed=args.seed,
            quick=args.quick,
            on_row=lambda row: print(line(row), flush=True),
        )
    except (PackageError, GraphError, ValueError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["correct"] for row in rows) else 1


def line(row: Row) -> str:
    """One row for people."""
    text = f"{row['name']:<11} ours {row['ours_us']:>9} us"
    if row["best_peer"] is not None:
        peers = cast("dict[str, float]", row["peers"])
        best = cast("str", row["best_peer"])
        low, high = cast("list[float]", row["ratio_ci"])
        text += f"   best peer {peers[best]:>9} us ({best})"
        text += f"   ratio {row['ratio']:.2f} [{low:.2f}, {high:.2f}]"
    return text + ("" if row["correct"] else "   WRONG RESULT")
