"""`tune`: search kernels for a model, or for one operator, within a budget.

In: an ONNX file with samples of its traffic, or `--op` with its sizes. Out: a package, or one
kernel's source with its records.
Never here: the search.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelgen.agent.ledger import TokenPrice
from kernelgen.agent.optimize import optimize
from kernelgen.agent.options import KEY, MODEL, URL, Options, endpoint
from kernelgen.agent.records import Trial
from kernelgen.agent.results import TrialEvent
from kernelgen.agent.search import Found
from kernelgen.agent.single import KERNEL, Single
from kernelgen.agent.sizes import operator_of
from kernelgen.commands import show
from kernelgen.judge.contest import Point
from kernelgen.machine import describe
from kernelgen.ops import FAMILIES
from kernelgen.workload import docstring_sentences, load_samples, tokenize

NAME = "tune"
HELP = "search kernels for MODEL.onnx, or for one operator, within a budget"
DETAIL = f"""\
one operator:
  --op FAMILY[:SIZE=NUMBER,...] names it, --shape gives the sizes of the calls to time. Both may
  hold any of the sizes; which belong to the operator is known from its family:
    --op gemm_bias:k=384,n=1152 --shape m=32
    --op gemm_bias --shape k=384 n=1152 m=32
  families: {", ".join(sorted(FAMILIES))}

language model (optional): --llm-url or {URL} is the base of an OpenAI-compatible API, --llm-model
  or {MODEL} its model; the key is read from {KEY} only and is never written anywhere.

exit codes: 0 a correct kernel was found, 1 none was, 2 wrong use
"""

SENTENCES = 400
_BUDGET = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h)?$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = DETAIL
    parser.add_argument("model", type=Path, nargs="?", help="ONNX file of a text encoder")
    parser.add_argument("--op", help="one operator instead, for example gemm_bias:k=384,n=1152")
    parser.add_argument(
        "--shape", nargs="+", default=[], metavar="NAME=NUMBER", help="sizes of --op"
    )
    parser.add_argument("--target", default="cpu", choices=["cpu"], help="hardware to write for")
    parser.add_argument("--budget", default="90s", help="search time: 90s, 5m, 1h (default 90s)")
    parser.add_argument("--trials", type=int, help="most trials to make")
    parser.add_argument("--money", help="most money to spend, in --currency")
    parser.add_argument(
        "--value",
        help="money the whole run time costs while the result is in use: the search stops when its "
        "next minute is worth less than it costs",
    )
    parser.add_argument("--out", type=Path, required=True, help="package directory to write")
    parser.add_argument("--samples", type=Path, help=".npz of token ids, the model's traffic")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json for built-in sentences")
    parser.add_argument("--records", type=Path, help="trials.jsonl to resume from and add to")
    parser.add_argument("--knowledge", type=Path, help="trials of other searches: file or folder")
    parser.add_argument("--replay", action="store_true", help="repeat --out's search from records")
    parser.add_argument("--seed", type=int, default=0, help="seed of the proposals (default 0)")
    parser.add_argument("--core", type=int, default=None, help="core the kernels run on")
    parser.add_argument("--customer", default="", help="whom the ledger books to")
    parser.add_argument("--price-per-core-hour", default="0", help="money per core hour")
    parser.add_argument("--price-per-mtok-in", default="0", help="money per million tokens sent")
    parser.add_argument("--price-per-mtok-out", default="0", help="... and answered")
    parser.add_argument("--currency", default="USD", help="ISO 4217 code (default USD)")
    parser.add_argument("--llm-url", help="base URL of an OpenAI-compatible API")
    parser.add_argument("--llm-model", help="the server's name for the model to ask")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    if arguments.replay:
        return _replay(arguments)
    if (arguments.model is None) == (arguments.op is None):
        raise ValueError("tune: wanted either MODEL.onnx or --op NAME with --shape")
    budget_s = seconds(arguments.budget)
    price = _money(arguments.price_per_core_hour, "--price-per-core-hour")
    core = min(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
    options = _options(arguments)
    if arguments.op is not None:
        return _tune_operator(arguments, budget_s, price, core, options)
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
        options=options,
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
    arguments: argparse.Namespace, budget_s: float, price: Decimal, core: int, options: Options
) -> int:
    operator, dims = operator_of(arguments.op, arguments.shape)
    single = Single(
        operator,
        (Point(dims),),
        describe(),
        seed=arguments.seed,
        budget_s=budget_s,
        options=options,
        price_per_core_hour=price,
    )
    found = single.run(
        arguments.out,
        core=core,
        currency=arguments.currency,
        records=arguments.records,
        on_trial=lambda trial: show.progress(trial_line(trial)),
    )
    return _tell(arguments, found)


def _replay(arguments: argparse.Namespace) -> int:
    found = Single.replay(arguments.out, on_trial=lambda trial: show.progress(trial_line(trial)))
    return _tell(arguments, found)


def _tell(arguments: argparse.Namespace, found: Found) -> int:
    best = found.best
    facts = {
        "operator": found.default.operator,
        "schedule": None if best is None else best.text(),
        "speed": round(found.speed, 4),
        "trials": len(found.trials),
        "accepted_by": dict(Counter(t.proposer for t in found.trials if t.accepted)),
        "rejected": dict(Counter(t.reason for t in found.trials if not t.accepted)),
        "seconds": round(found.seconds, 2),
        "cost": str(found.cost),
        "ended": found.ended,
        "source": None if best is None else str(arguments.out / KERNEL),
    }
    if arguments.json:
        show.document(facts)
    else:
        show.pairs(facts)
    return 1 if best is None else 0


def _options(arguments: argparse.Namespace) -> Options:
    optional = {
        name: None if text is None else _money(text, f"--{name}")
        for name, text in (("money", arguments.money), ("value", arguments.value))
    }
    return Options(
        trials=arguments.trials,
        money=optional["money"],
        value=optional["value"],
        knowledge=arguments.knowledge,
        llm=endpoint(arguments.llm_url, arguments.llm_model, None, os.environ),
        token_price=TokenPrice(
            _money(arguments.price_per_mtok_in, "--price-per-mtok-in"),
            _money(arguments.price_per_mtok_out, "--price-per-mtok-out"),
        ),
        customer=arguments.customer,
    )


def seconds(text: str) -> float:
    """`90s`, `5m`, `1h` or plain seconds. Raises `ValueError`."""
    match = _BUDGET.match(text)
    if match is None:
        raise ValueError(f"--budget: got {text!r}, wanted a time such as 90s, 5m or 1h")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, None: 1}[match.group(2)]


def _money(text: str, option: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{option}: got {text!r}, wanted a number") from error
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{option}: got {text!r}, wanted a number, 0 or more")
    return amount


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
