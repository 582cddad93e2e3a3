"""Commands of the measuring half: ``loadgen``, ``uplift``, ``stacks``.

In: files named on the command line. Out: a result for people or, with ``--json``, for programs.
Exit status: 0 done, 1 the answer is no (a run is not VALID, an uplift is not kept, evidence does
not hold), 2 wrong use with one clear line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from metering import evidence, loadgen, mix, stacks
from metering.energy import NOT_MEASURED
from metering.loadgen.spec import RunSpec
from metering.uplift.plots import PlotsMissing, write_plots

DONE, NO = 0, 1


class WrongUse(Exception):
    """A file or argument that cannot be used; the message is the one line a person sees."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("loadgen", help="run one LoadGen test in a supervised child")
    command.add_argument("spec", type=Path, metavar="SPEC.json")
    command.add_argument("--out", type=Path, required=True, help="new folder for the run")
    command.add_argument(
        "--calibrate",
        type=float,
        metavar="SECONDS",
        help="probe first, then run for about so long; in Server at the highest rate that held",
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_loadgen)

    command = subparsers.add_parser(
        "uplift",
        help="recompute evidence folders from their logs; several are one family of claims",
    )
    command.add_argument("evidence", type=Path, nargs="+", metavar="EVIDENCE_DIR")
    command.add_argument(
        "--traffic",
        type=int,
        nargs="+",
        metavar="SAMPLES",
        help="samples served by each folder's model in the period: gives the uplift of the mix",
    )
    command.add_argument(
        "--plots", type=Path, metavar="DIR", help="charts and a table of one folder's runs, in DIR"
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_uplift)

    command = subparsers.add_parser("stacks", help="list the stock stacks of this machine")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_stacks)


def _loadgen(arguments: argparse.Namespace) -> int:
    try:
        spec = RunSpec.from_dict(read_object(arguments.spec))
        if arguments.calibrate is not None:
            probe = arguments.out.with_name(f"{arguments.out.name}-probe")
            for folder in (probe, arguments.out):
                if folder.exists():
                    raise WrongUse(f"{folder} is there already; choose another --out")
            spec = loadgen.calibrate(spec, probe, run_seconds=arguments.calibrate).spec
        limit_s = stacks.prepare_limit_s(spec.sut)
        if limit_s and not arguments.json:
            print(f"{spec.sut.stack}: may take up to {limit_s:g} s to open before the test begins")
        result = loadgen.run(spec, arguments.out)
    except (loadgen.CalibrationError, loadgen.FloorError) as error:
        print(f"not measurable: {error}", file=sys.stderr)
        return NO
    except (loadgen.SpecError, loadgen.RunRefused, stacks.StackError, ValueError) as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        print_json(result.to_dict())
    else:
        print(f"{result.state} {spec.run_id}" + _figures(result))
        for reason in result.reasons:
            print(f"  {reason}")
    return DONE if result.valid else NO


def _figures(result: loadgen.RunResult) -> str:
    if result.samples_per_second is None:
        return ""
    text = f" {result.samples_per_second} samples/s"
    if result.tokens is not None:
        text += f", {result.tokens.tokens_per_second} tokens/s"
        for name, times in (("TTFT", result.tokens.ttft), ("TPOT", result.tokens.tpot)):
            text += "" if times is None else f", {name} p99 {times.p99_ns / 1e6:.3f} ms"
    elif result.latency is not None:
        text += f", p99 {result.latency.p99_ns / 1e6:.3f} ms"
    return text


def _uplift(arguments: argparse.Namespace) -> int:
    folders: list[Path] = arguments.evidence
    for folder in folders:
        if not folder.is_dir():
            raise WrongUse(f"no folder at {folder}; name an evidence folder")
    if len({folder.resolve() for folder in folders}) != len(folders):
        raise WrongUse("an evidence folder is named twice; each claim counts once")
    traffic: list[int] | None = arguments.traffic
    if traffic is not None and (
        len(traffic) != len(folders) or min(traffic) < 0 or not any(traffic)
    ):
        raise WrongUse(
            f"--traffic: got {traffic}, wanted a number of samples from 0 for each of "
            f"{len(folders)} folders, not all 0"
        )
    if arguments.plots is not None and len(folders) != 1:
        raise WrongUse(f"--plots: got {len(folders)} evidence folders, wanted one")
    found = {}
    for folder in folders:
        try:
            found[str(folder)] = evidence.recompute_member(folder)
        except loadgen.EvidenceError as error:
            where = "" if len(folders) == 1 else f"{folder}: "
            if arguments.json:
                print_json({"kept": False, "reasons": [f"evidence: {where}{error}"]})
            print(f"evidence does not hold: {where}{error}", file=sys.stderr)
            return NO
    first = found[str(folders[0])]
    if arguments.plots is not None:
        if isinstance(first, evidence.Unclaimed):
            raise WrongUse(f"--plots: {folders[0]} plans no claim, so there are no pairs to draw")
        try:
            written = write_plots(folders[0], first, arguments.plots)
        except PlotsMissing as error:
            raise WrongUse(str(error)) from error
        for path in written:
            print(f"wrote {path}", file=sys.stderr)
    if len(folders) == 1 and traffic is None:
        if isinstance(first, evidence.Unclaimed):
            return _no_claim(arguments, first)
        return _one_claim(arguments, first)
    try:
        together = mix.recompute_family(found, traffic)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        print_json(together.to_dict())
    else:
        _show_mix(together)
    return DONE if together.kept else NO


def _show_mix(together: mix.RecomputedFamily) -> None:
    for claim in together.claims:
        figures = claim.estimate
        print(
            f"{claim.name}: {figures.point:.2%} [{figures.lo:.2%}, {figures.hi:.2%}], bound "
            f"{claim.bound:.2%}, p {claim.adjusted_p:.4f} (Holm): "
            + ("kept" if claim.name in together.kept else "not kept")
        )
    for name, reasons in together.reasons.items():
        for reason in reasons:
            print(f"  {name}: {reason}")
    print("counts    factor  baseline/s  seconds before  seconds after  model")
    for member in together.members:
        seconds = (member.seconds_before, member.seconds_after)
        before, after = ("-" if value is None else f"{value:.3f}" for value in seconds)
        print(
            f"{member.uplift:9.2%} {1 + member.uplift:6.3f} {member.samples_per_second:>11} "
            f"{before:>15} {after:>14}  {member.name}: {member.note}; energy {member.energy}"
        )
    if together.uplift is not None:
        print(f"mix       {together.uplift:.2%}, all bounds together at 95 %")


def _no_claim(arguments: argparse.Namespace, found: evidence.Unclaimed) -> int:
    if arguments.json:
        print_json(found.to_dict())
    else:
        print(f"baseline  {found.baseline_samples_per_second} samples/s, {found.baseline.stack}")
        print(f"accuracy  {found.baseline.accuracy.words}")
        print(f"uplift    0.00 %, factor 1.000: {evidence.NO_CANDIDATE}")
        print(f"energy    {NOT_MEASURED}")
    return NO


def _one_claim(arguments: argparse.Namespace, found: evidence.Recomputed) -> int:
    if arguments.json:
        print_json(found.to_dict())
    else:
        print(f"baseline  {found.baseline_samples_per_second} samples/s, {found.baseline.stack}")
        print(f"A/A       [{found.aa.lo:.2%}, {found.aa.hi:.2%}] passed: {found.aa.passed}")
        if found.uplift is not None:
            uplift = found.uplift
            print(
                f"uplift    {uplift.point:.2%} [{uplift.lo:.2%}, {uplift.hi:.2%}], "
                f"lower 95 % bound {uplift.lower_95:.2%}, {uplift.n} pairs"
            )
        print(f"accuracy  {found.accuracy.words}")
        print(f"energy    {found.energy.words}")
        tail, cache = found.tail, found.cache
        print("p99       " + ("no worse" if tail.passed else "not shown to be no worse"))
        print("cache     " + ("not measured" if cache is None else f"passed: {cache.passed}"))
        if found.second is not None:
            second = found.second
            print(f"precision passed: {second.precision.passed}")
            print(f"machine   alike for both arms: {second.conditions.passed}")
            print(f"held back {'no' if second.held_back.passed else 'not shown that not'}")
        print("kept" if found.decision.kept else "not kept")
        for reason in found.decision.reasons:
            print(f"  {reason}")
    return DONE if found.decision.kept else NO


def _stacks(arguments: argparse.Namespace) -> int:
    infos = stacks.discover_stock()
    if arguments.json:
        print_json([info.to_dict() for info in infos])
    else:
        for info in infos:
            print(f"{info.name:12} {info.version or '-':12} {info.reason or 'available'}")
    return DONE if any(info.available for info in infos) else NO


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises WrongUse."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise WrongUse(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise WrongUse(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise WrongUse(f"{path}: wanted a JSON object")
    return value


def print_json(value: Any) -> None:
    """A result for programs, on standard output."""
    print(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False))
