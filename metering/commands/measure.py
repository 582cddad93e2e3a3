"""Commands of the measuring half: ``loadgen``, ``baseline``, ``uplift``, ``stacks``.

In: files named on the command line. Out: a result for people or, with ``--json``, for programs.
Exit status: 0 done, 1 the answer is no (a run is not VALID, an uplift is not kept, evidence does
not hold), 2 wrong use with one clear line.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metering import baseline as baselines
from metering import evidence, loadgen, stacks
from metering.loadgen.spec import RunSpec, SutSpec
from metering.plan import MeasurementPlan

DONE, NO = 0, 1


class WrongUse(Exception):
    """A file or argument that cannot be used; the message is the one line a person sees."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("loadgen", help="run one LoadGen test in a supervised child")
    command.add_argument("spec", type=Path, metavar="SPEC.json")
    command.add_argument("--out", type=Path, required=True, help="new folder for the run")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_loadgen)

    command = subparsers.add_parser(
        "baseline", help="sweep the stock stacks and freeze the fastest correct one"
    )
    command.add_argument(
        "spec",
        type=Path,
        metavar="SPEC.json",
        help='{"plan": {...}, "model": path, "samples": path, "as_found": {...} or absent}',
    )
    command.add_argument("--out", type=Path, required=True, help="folder; resumed when not empty")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_baseline)

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
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_uplift)

    command = subparsers.add_parser("stacks", help="list the stock stacks of this machine")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_stacks)


def _loadgen(arguments: argparse.Namespace) -> int:
    try:
        spec = RunSpec.from_dict(_read_object(arguments.spec))
        result = loadgen.run(spec, arguments.out)
    except (loadgen.SpecError, loadgen.RunRefused, stacks.StackError, ValueError) as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        _print_json(result.to_dict())
    else:
        figure = result.samples_per_second
        print(f"{result.state} {spec.run_id}" + (f" {figure} samples/s" if figure else ""))
        for reason in result.reasons:
            print(f"  {reason}")
    return DONE if result.valid else NO


def _baseline(arguments: argparse.Namespace) -> int:
    request = _read_object(arguments.spec)
    unknown = sorted(set(request) - {"plan", "model", "samples", "as_found"})
    if unknown:
        raise WrongUse(f"{arguments.spec}: unknown fields {unknown}")
    folder = arguments.spec.resolve().parent
    try:
        plan = MeasurementPlan.from_json(request["plan"])
        model, samples = (folder / str(request[name]) for name in ("model", "samples"))
        found = request.get("as_found")
        as_found = None if found is None else SutSpec.from_dict(found)
    except KeyError as error:
        raise WrongUse(f"{arguments.spec}: the field {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise WrongUse(f"{arguments.spec}: {error}") from error
    for path in (model, samples):
        if not path.is_file():
            raise WrongUse(f"no file at {path}; correct the path in {arguments.spec}")

    def show(step: baselines.SweepStep) -> None:
        if not arguments.json:
            figure = step.result.samples_per_second or "-"
            name = f"{step.result.run_id} {step.sut.stack}"
            print(f"[{step.done}/{step.total}] {name} {step.result.state} {figure}", flush=True)

    try:
        measured = baselines.sweep(plan, model, samples, arguments.out, show, as_found=as_found)
        frozen = _freeze_once(measured, arguments.out)
    except (
        baselines.SweepError,
        loadgen.FloorError,
        loadgen.CalibrationError,
        loadgen.EvidenceError,
    ) as error:
        print(f"no baseline: {error}", file=sys.stderr)
        return NO
    except (loadgen.SpecError, loadgen.RunRefused, stacks.StackError) as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        _print_json(frozen.to_dict())
    else:
        sut = frozen.sut
        print(
            f"{frozen.stack} {frozen.version}: {frozen.samples_per_second} samples/s "
            f"({sut.instances} x {sut.threads} threads, {sut.arrangement} {sut.batch}, "
            f"graph {sut.graph_optimization})"
        )
    return DONE


def _freeze_once(measured: baselines.Sweep, out: Path) -> baselines.Baseline:
    """Freeze now, or give back what a former call froze from the same runs."""
    if (out / "baseline.json").exists():
        earlier = baselines.load(out)
        again = baselines.freeze(measured, frozen_at=earlier.frozen_at)
        baselines.save(again, out)
        return again
    frozen = baselines.freeze(measured, frozen_at=datetime.now(UTC))
    baselines.save(frozen, out)
    return frozen


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
    found = {}
    for folder in folders:
        try:
            found[str(folder)] = evidence.recompute(folder)
        except loadgen.EvidenceError as error:
            where = "" if len(folders) == 1 else f"{folder}: "
            if arguments.json:
                _print_json({"kept": False, "reasons": [f"evidence: {where}{error}"]})
            print(f"evidence does not hold: {where}{error}", file=sys.stderr)
            return NO
    if len(folders) == 1 and traffic is None:
        return _one_claim(arguments, found[str(folders[0])])
    try:
        mix = evidence.recompute_family(found, traffic)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        _print_json(mix.to_dict())
    else:
        for claim in mix.claims:
            figures = claim.estimate
            print(
                f"{claim.name}: {figures.point:.2%} [{figures.lo:.2%}, {figures.hi:.2%}], bound "
                f"{claim.bound:.2%}, p {claim.adjusted_p:.4f} (Holm): "
                + ("kept" if claim.name in mix.kept else "not kept")
            )
        for name, reasons in mix.reasons.items():
            for reason in reasons:
                print(f"  {name}: {reason}")
        if mix.uplift is not None:
            print(f"mix       {mix.uplift:.2%}, all bounds together at 95 %")
    return DONE if mix.kept else NO


def _one_claim(arguments: argparse.Namespace, found: evidence.Recomputed) -> int:
    if arguments.json:
        _print_json(found.to_dict())
    else:
        print(f"baseline  {found.baseline_samples_per_second} samples/s, {found.baseline.stack}")
        print(f"A/A       [{found.aa.lo:.2%}, {found.aa.hi:.2%}] passed: {found.aa.passed}")
        if found.uplift is not None:
            uplift = found.uplift
            print(
                f"uplift    {uplift.point:.2%} [{uplift.lo:.2%}, {uplift.hi:.2%}], "
                f"lower 95 % bound {uplift.lower_95:.2%}, {uplift.n} pairs"
            )
        print(f"accuracy  worst cosine {found.accuracy.min_cosine:.6f}")
        tail, cache = found.tail, found.cache
        print("p99       " + ("no worse" if tail.passed else "not shown to be no worse"))
        print("cache     " + ("not measured" if cache is None else f"passed: {cache.passed}"))
        print("kept" if found.decision.kept else "not kept")
        for reason in found.decision.reasons:
            print(f"  {reason}")
    return DONE if found.decision.kept else NO


def _stacks(arguments: argparse.Namespace) -> int:
    infos = stacks.discover_stock()
    if arguments.json:
        _print_json([info.to_dict() for info in infos])
    else:
        for info in infos:
            print(f"{info.name:12} {info.version or '-':12} {info.reason or 'available'}")
    return DONE if any(info.available for info in infos) else NO


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise WrongUse(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise WrongUse(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise WrongUse(f"{path}: wanted a JSON object")
    return value


def _print_json(value: Any) -> None:
    print(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False))
