"""`python -m kernelgen bench`: times kernels against the stock stacks and writes the rows.

In: parsed arguments. Out: a table for people on standard output, JSON rows in a file, an exit code.
Never here: a number that was not measured in this run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kernelgen.bench import blas
from kernelgen.bench.models import Row, run_models
from kernelgen.graph import GraphError
from kernelgen.judge.verdict import JudgeError
from kernelgen.package.manifest import PackageError
from kernelgen.targets import guard


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; `--threads` exists so that the promise of one thread can be
    stated.
    """
    parser.add_argument("--suite", choices=["models", "ops"], default="models")
    parser.add_argument("--package", type=Path, help="models: kernel package directory")
    parser.add_argument("--model", type=Path, help="models: the ONNX file it was built from")
    parser.add_argument("--tokenizer", type=Path, help="models: its tokenizer.json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="ops: names that contain a word")
    parser.add_argument("--budget", type=float, help="ops: seconds of search per operator")
    parser.add_argument("--records", type=Path, help="ops: trials.jsonl to resume from and add to")
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
        return _ops(args) if args.suite == "ops" else _models(args)
    except (PackageError, GraphError, JudgeError, ValueError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def _models(args: argparse.Namespace) -> int:
    for name in ("package", "model", "tokenizer"):
        if getattr(args, name) is None:
            raise ValueError(f"--{name}: missing, the suite models needs it")
    rows = run_models(
        args.package,
        model=args.model,
        tokenizer=args.tokenizer,
        core=args.core,
        seed=args.seed,
        quick=args.quick,
        on_row=lambda row: print(line(row), flush=True),
    )
    _write(args.json, rows)
    return 0 if all(row["correct"] for row in rows) else 1


DEFAULT_BUDGET_S = 8.0


def _ops(args: argparse.Namespace) -> int:
    forced = blas.forced(os.environ)
    if forced:
        # OpenBLAS has read them already: only a new process gives NumPy its best kernels.
        command = [sys.executable, "-m", "kernelgen", "bench", *_words(args)]
        return guard.start(command, stdin=None, environment=blas.free_environment()).wait()
    from kernelgen.bench import table
    from kernelgen.bench.cases import chosen
    from kernelgen.bench.ops import Settings, run_ops
    from kernelgen.bench.summary import summary

    cases = chosen(args.only, quick=args.quick)
    budget = (0.0 if args.quick else DEFAULT_BUDGET_S) if args.budget is None else args.budget
    with tempfile.TemporaryDirectory(prefix="kernelgen-bench-") as folder:
        work = Path(folder)
        settings = Settings(
            core=args.core,
            work=work,
            records=args.records or work / "trials.jsonl",
            budget_s=budget,
            seed=args.seed,
            quick=args.quick,
        )
        # On a terminal the table comes at the end; until then a line per row shows the progress.
        stream = sys.stderr if sys.stdout.isatty() else sys.stdout
        rows: list[Row] = []

        def keep(row: Row) -> None:
            """Written at once: a run that is ended early keeps what it measured."""
            row["openblas"] = blas.core_name()
            rows.append(row)
            _write(args.json, rows)
            print(table.line(row), file=stream, flush=True)

        run_ops(cases, settings, on_row=keep)
    _write(args.json, rows)
    table.show(rows, summary(rows))
    return 0 if all(row["correct"] for row in rows) else 1


def _words(args: argparse.Namespace) -> list[str]:
    """The arguments that `args` was parsed from."""
    words = ["--suite", args.suite, "--core", str(args.core), "--seed", str(args.seed)]
    words += ["--threads", str(args.threads)]
    for name in ("budget", "records", "json"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--quick"] if args.quick else []
    return words + (["--only", *args.only] if args.only else [])


def _write(path: Path | None, rows: Sequence[Row]) -> None:
    if path is not None:
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def line(row: Row) -> str:
    """One row of the models suite for people."""
    text = f"{row['name']:<11} ours {row['ours_us']:>9} us"
    if row["best_peer"] is not None:
        peers = cast("dict[str, float]", row["peers"])
        best = cast("str", row["best_peer"])
        low, high = cast("list[float]", row["ratio_ci"])
        text += f"   best peer {peers[best]:>9} us ({best})"
        text += f"   ratio {row['ratio']:.2f} [{low:.2f}, {high:.2f}]"
    return text + ("" if row["correct"] else "   WRONG RESULT")
