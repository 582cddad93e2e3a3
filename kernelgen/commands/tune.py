"""`tune`: search kernels for a model, or for one operator, within a budget.

In: an ONNX file with samples of its traffic, or `--op` with its sizes. Out: a package, or one
kernel's source.
Never here: the search.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelgen.agent.bench import Bench
from kernelgen.agent.ledger import Ledger
from kernelgen.agent.optimize import optimize
from kernelgen.agent.records import Records, Trial
from kernelgen.agent.results import TrialEvent
from kernelgen.agent.search import search
from kernelgen.commands import show
from kernelgen.emit import source
from kernelgen.judge.contest import Point
from kernelgen.machine import describe
from kernelgen.ops import from_spec
from kernelgen.schedule import space
from kernelgen.workload import docstring_sentences, load_samples, tokenize

NAME = "tune"
HELP = "search kernels for MODEL.onnx, or for one operator, within a budget"

SENTENCES = 400
_BUDGET = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h)?$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, nargs="?", help="ONNX file of a text encoder")
    parser.add_argument("--op", help="one operator family instead, for example gemm_bias")
    parser.add_argument(
        "--shape", nargs="+", default=[], metavar="NAME=NUMBER", help="sizes of --op"
    )
    parser.add_argument("--target", default="cpu", choices=["cpu"], help="hardware to write for")
    parser.add_argument("--budget", default="90s", help="search time: 90s, 5m, 1h (default 90s)")
    parser.add_argument("--out", type=Path, required=True, help="package directory to write")
    parser.add_argument("--samples", type=Path, help=".npz of token ids, the model's traffic")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json for built-in sentences")
    parser.add_argument("--records", type=Path, help="trials.jsonl to resume from and add to")
    parser.add_argument("--seed", type=int, default=0, help="seed of the proposals (default 0)")
    parser.add_argument("--core", type=int, default=None, help="core the kernels run on")
    parser.add_argument("--price-per-core-hour", default="0", help="money per core hour")
    parser.add_argument("--currency", default="USD", help="ISO 4217 code (default USD)")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    if (arguments.model is None) == (arguments.op is None):
        raise ValueError("tune: wanted either MODEL.onnx or --op NAME with --shape")
    budget_s = seconds(arguments.budget)
    price = _price(arguments.price_per_core_hour)
    core = min(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
    if arguments.op is not None:
        return _tune_operator(arguments, budget_s, price, core)
    result = optimize(
        arguments.model,
        out=arguments.out,
        budget_s=budget_s,
        samples=_samples(arguments),
        seed=arguments.seed,
        price_per_core_hour=price,
        currency=arguments.currency,
        records=arguments.records,
        core=core,
        on_event=lambda event: show.progress(event_line(event)),
    )
    if arguments.json:
        show.document(result.to_dict())
        return 0
    for row in result.operators:
        print(
            f"{row.operator}: {row.share:.1%} of the time, {row.trials} trials, "
            f"{row.ratio:.3f}x [{row.ratio_lo:.3f}, {row.ratio_hi:.3f}]"
        )
    gate = result.model_gate
    print(f"model: {gate.ratio:.3f}x [{gate.ratio_lo:.3f}, {gate.ratio_hi:.3f}], {gate.reason}")
    print(f"{result.trials} trials in {result.seconds:.0f} s, {result.cost} {result.currency}")
    print(f"package: {result.package}")
    return 0


def _tune_operator(
    arguments: argparse.Namespace, budget_s: float, price: Decimal, core: int
) -> int:
    shape = _shape(arguments.shape)
    operator_names = {"m", "n", "tokens"}
    fixed, dims = _split(arguments.op, shape, operator_names)
    operator = from_spec({"family": arguments.op, **fixed})
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    machine = describe()
    bench = Bench(
        operator,
        (Point({name: dims[name] for name in operator.dims}),),
        machine=machine,
        core=core,
        work=out / "work",
        ledger=Ledger(out / "ledger.jsonl", price, arguments.currency),
        records=Records(arguments.records or out / "trials.jsonl"),
    )
    found = search(
        space(operator, machine),
        bench,
        np.random.default_rng(arguments.seed),
        budget_s=budget_s,
        on_trial=lambda trial: show.progress(trial_line(trial)),
    )
    if found.schedule is None:
        show.document({"operator": operator.name, "schedule": None, "trials": len(found.trials)})
        return 1
    (out / "kernel.c").write_text(source(operator, found.schedule), encoding="ascii")
    facts = {
        "operator": operator.name,
        "schedule": found.schedule.text(),
        "speed": round(found.speed, 4),
        "trials": len(found.trials),
        "rejected": dict(Counter(t.reason for t in found.trials if not t.accepted)),
        "seconds": round(found.seconds, 2),
        "source": str(out / "kernel.c"),
    }
    if arguments.json:
        show.document(facts)
    else:
        show.pairs(facts)
    return 0


def seconds(text: str) -> float:
    """`90s`, `5m`, `1h` or plain seconds. Raises `ValueError`."""
    match = _BUDGET.match(text)
    if match is None:
        raise ValueError(f"--budget: got {text!r}, wanted a time such as 90s, 5m or 1h")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, None: 1}[match.group(2)]


def _price(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"--price-per-core-hour: got {text!r}, wanted a number") from error


def _shape(words: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            if not equals:
                raise ValueError
            found[name] = float(value) if "." in value or "e" in value else int(value)
        except ValueError:
            raise ValueError(f"--shape: got {word!r}, wanted NAME=NUMBER") from None
    return found


def _split(
    family: str, shape: dict[str, float], varying: set[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Which of the numbers belong to the operator and which to the call; `n` may be either."""
    from kernelgen.ops import FAMILIES

    if family not in FAMILIES:
        raise ValueError(f"--op: got {family!r}, wanted one of {', '.join(sorted(FAMILIES))}")
    own = {item.name for item in fields(FAMILIES[family])}
    fixed = {name: value for name, value in shape.items() if name in own}
    dims = {name: int(value) for name, value in shape.items() if name not in own}
    unknown = set(dims) - varying
    missing = own - set(fixed)
    if unknown or missing:
        raise ValueError(
            f"--shape: unknown {sorted(unknown)}, missing {sorted(missing)} for {family}"
        )
    wanted = set(from_spec({"family": family, **fixed}).dims)
    if wanted != set(dims):
        raise ValueError(f"--shape: got sizes {sorted(dims)}, {family} wants {sorted(wanted)}")
    return fixed, dims


def _samples(arguments: argparse.Namespace) -> list[npt.NDArray[np.int64]]:
    if arguments.samples is not None:
        return load_samples(arguments.samples)
    if arguments.tokenizer is None:
        raise ValueError("tune: wanted --samples FILE.npz, or --tokenizer FILE for built-in text")
    return tokenize(docstring_sentences(SENTENCES), arguments.tokenizer)


def event_line(event: TrialEvent) -> str:
    """One line of progress."""
    ratio = "" if event.ratio is None else f" {event.ratio:.3f}x"
    where = "" if event.operator is None else f" {event.operator}"
    return f"{event.seconds_elapsed:7.1f} s {event.kind}{where}{ratio} {event.text}"


def trial_line(trial: Trial) -> str:
    """One line per trial."""
    ratio = "" if trial.ratio is None else f" {trial.ratio:.3f}x"
    return f"#{trial.number} {trial.reason}{ratio} {trial.schedule.partition(': ')[2]}"
