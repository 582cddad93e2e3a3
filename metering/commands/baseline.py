"""Command ``baseline``: measure one, register it, say which one counts and when the next is due.

In: files named on the command line. Out: a result for people or, with ``--json``, for programs.
Exit status: 0 done, 1 the answer is no (no baseline, evidence or registry does not hold, not
comparable, a re-measurement is due), 2 wrong use with one clear line.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)

from metering import baseline as baselines
from metering import loadgen, stacks
from metering.baseline import comparability, registry, schedule
from metering.commands.measure import DONE, NO, WrongUse, print_json, read_object
from metering.commands.parts import command_with_parts
from metering.contract import BaselinePolicy
from metering.fields import instant_text, parse_instant
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan
from metering.refusal import Refusal

POLICIES = ("fixed", "reset", "ratchet", "glide")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's command; each part sets ``handler(arguments) -> exit status``."""
    part = command_with_parts(subparsers, "baseline", "measure, register and re-measure baselines")
    found = part("measure", _measure, "sweep the stock stacks and freeze the fastest correct one")
    found.add_argument(
        "spec",
        type=Path,
        metavar="SPEC.json",
        help='{"plan": {...}, "model": path, "samples": path, "as_found": {...} or absent}',
    )
    found.add_argument("--out", type=Path, required=True, help="folder; resumed when not empty")

    found = part("add", _add, "check an evidence folder's baseline and sign it into the registry")
    found.add_argument("registry", type=Path, metavar="REGISTRY.jsonl")
    found.add_argument("evidence", type=Path, metavar="EVIDENCE_DIR")
    found.add_argument("--key", type=Path, required=True, help="Ed25519 private key, PEM")

    found = part("show", _show, "list the registry and say what counts under a policy")
    _registry_arguments(found)
    found.add_argument("--policy", choices=POLICIES, default="fixed")
    found.add_argument("--fraction", help="of the way to each new cost, with glide")
    found.add_argument("--reset", action="append", default=[], metavar="TIME", help="RFC 3339")
    found.add_argument("--at", metavar="TIME", help="say which one counts then; RFC 3339")
    found.add_argument(
        "--evidence",
        type=Path,
        nargs="+",
        metavar="EVIDENCE_DIR",
        help="work the entries out again, one folder each, oldest first",
    )

    found = part("due", _due, "say whether the last baseline has to be measured again")
    _registry_arguments(found)
    found.add_argument("--every-days", type=int, required=True)
    found.add_argument("--at", metavar="TIME", help="instead of now; RFC 3339")

    found = part("compare", _compare, "say whether two evidence folders are comparable")
    found.add_argument("evidence", type=Path, nargs=2, metavar="EVIDENCE_DIR")


def _registry_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("registry", type=Path, metavar="REGISTRY.jsonl")
    command.add_argument("--public", type=Path, required=True, help="Ed25519 public key, PEM")


def _measure(arguments: argparse.Namespace) -> int:
    plan, model, samples, as_found = _request(arguments.spec)

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
        print_json(frozen.to_dict())
        return DONE
    print(f"{frozen.stack} {frozen.version}: {_row(frozen.samples_per_second, frozen.sut)}")
    if frozen.as_found is not None:
        found = frozen.as_found
        print(f"as found {found.sut.stack}: {_row(found.samples_per_second, found.sut)}")
    return DONE


def _row(rate: Decimal | None, sut: SutSpec) -> str:
    return (
        f"{rate} samples/s ({sut.instances} x {sut.threads} threads, {sut.arrangement} "
        f"{sut.batch}, graph {sut.graph_optimization})"
    )


def _request(path: Path) -> tuple[MeasurementPlan, Path, Path, SutSpec | None]:
    request = read_object(path)
    unknown = sorted(set(request) - {"plan", "model", "samples", "as_found"})
    if unknown:
        raise WrongUse(f"{path}: unknown fields {unknown}")
    folder = path.resolve().parent
    try:
        plan = MeasurementPlan.from_json(request["plan"])
        model, samples = (folder / str(request[name]) for name in ("model", "samples"))
        found = request.get("as_found")
        as_found = None if found is None else SutSpec.from_dict(found)
    except KeyError as error:
        raise WrongUse(f"{path}: the field {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise WrongUse(f"{path}: {error}") from error
    for file in (model, samples):
        if not file.is_file():
            raise WrongUse(f"no file at {file}; correct the path in {path}")
    return plan, model, samples, as_found


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


def _add(arguments: argparse.Namespace) -> int:
    key = _private(arguments.key)
    try:
        entry = registry.append(arguments.registry, arguments.evidence, key)
    except (loadgen.EvidenceError, comparability.NotComparable, Refusal) as error:
        return _no(arguments, f"not registered: {error}")
    if arguments.json:
        print_json(entry.to_json())
    else:
        print(f"{entry.number}: {_line(entry)}")
    return DONE


def _show(arguments: argparse.Namespace) -> int:
    policy, resets, moment = _policy(arguments)
    public = _public(arguments.public)
    try:
        entries = registry.load(arguments.registry, public)
        folders: list[Path] = arguments.evidence or []
        if folders and len(folders) != len(entries):
            raise WrongUse(f"--evidence: got {len(folders)} folders, wanted {len(entries)}")
        for entry, folder in zip(entries, folders, strict=False):
            registry.hold(entry, folder)
    except loadgen.EvidenceError as error:
        return _no(arguments, f"registry does not hold: {error}")
    try:
        found = registry.effective(entries, policy, resets)
        counting = None if moment is None else registry.counting_at(found, moment)
    except Refusal as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        document = {
            "entries": [entry.to_json() for entry in entries],
            "policy": policy.to_json(),
            "effective": [one.to_dict() for one in found],
            "checked": len(folders),
        }
        if counting is not None:
            document["counting"] = counting.to_dict()
        print_json(document)
        return DONE
    for entry in entries:
        print(f"{entry.number}: {_line(entry)}")
    for one in found:
        print(
            f"from {instant_text(one.counts_from)} under {policy.kind}: {one.effective_cost} "
            f"core-seconds a million samples, {one.samples_per_second} samples/s"
        )
    if counting is not None:
        print(f"counts at {arguments.at}: {counting.samples_per_second} samples/s")
    return DONE


def _policy(
    arguments: argparse.Namespace,
) -> tuple[BaselinePolicy, tuple[datetime, ...], datetime | None]:
    try:
        fraction = None if arguments.fraction is None else Decimal(arguments.fraction)
        resets = tuple(parse_instant(text, "--reset") for text in arguments.reset)
        return BaselinePolicy(arguments.policy, fraction), resets, _moment(arguments.at)
    except (InvalidOperation, Refusal) as error:
        raise WrongUse(f"--policy {arguments.policy}: {error}") from error


def _due(arguments: argparse.Namespace) -> int:
    public = _public(arguments.public)
    try:
        now = _moment(arguments.at) or datetime.now(UTC)
        last = registry.load(arguments.registry, public)[-1]
        found = schedule.due(
            last, every_days=arguments.every_days, now=now, installed=stacks.discover_stock()
        )
    except loadgen.EvidenceError as error:
        return _no(arguments, f"registry does not hold: {error}")
    except Refusal as error:
        raise WrongUse(str(error)) from error
    if arguments.json:
        print_json(found.to_dict())
    else:
        print(f"due by {instant_text(found.by)}" + (", and due now:" if found.reasons else ""))
        for reason in found.reasons:
            print(f"  {reason}")
    return NO if found.reasons else DONE


def _compare(arguments: argparse.Namespace) -> int:
    left, right = arguments.evidence
    try:
        wanted, got = comparability.key_of(left), comparability.key_of(right)
    except loadgen.EvidenceError as error:
        return _no(arguments, f"evidence does not hold: {error}")
    differences = wanted.differences(got)
    if arguments.json:
        print_json({"comparable": not differences, "differences": list(differences)})
    else:
        print("not comparable" if differences else "comparable")
        for text in differences:
            print(f"  {text}")
    return NO if differences else DONE


def _line(entry: registry.Entry) -> str:
    found = "" if entry.as_found is None else f", as found {entry.as_found}"
    return (
        f"{instant_text(entry.frozen_at)} {entry.stack} {entry.version}: "
        f"{entry.samples_per_second} samples/s{found}, {entry.baseline_sha256[:12]}"
    )


def _no(arguments: argparse.Namespace, reason: str) -> int:
    if arguments.json:
        print_json({"reason": reason})
    print(reason, file=sys.stderr)
    return NO


def _moment(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text, "--at")


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise WrongUse(f"--key: {path}: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise WrongUse(f"--key: {path}: got {error}; wanted a PEM without passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise WrongUse(f"--key: {path}: got another kind of key, wanted Ed25519")
    return key


def _public(path: Path) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise WrongUse(f"--public: {path}: {error.strerror}") from error
    except ValueError as error:
        raise WrongUse(f"--public: {path}: not a public key in PEM ({error})") from error
    if not isinstance(key, Ed25519PublicKey):
        raise WrongUse(f"--public: {path}: got another kind of key, wanted Ed25519")
    return key
