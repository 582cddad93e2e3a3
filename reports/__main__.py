"""`python -m reports`: render, sign as an auditor, verify; for people without the product.

In: arguments. Out: an exit status: 0 done, 1 the answer is no, 2 wrong use. A person's mistake is
one clear line on standard error, never a traceback. A passphrase comes from the environment
(IGNITION_AUDITOR_PASSPHRASE), never from the command line, where others could read it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.bundle import auditor_sign, sign_statement
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.keys import create_auditor_keys, write_private_file
from reports.pdf import render
from reports.trust import export_trust
from reports.verify import verify

DONE, NO, WRONG_USE = 0, 1, 2
PASSPHRASE = "IGNITION_AUDITOR_PASSPHRASE"  # noqa: S105  (a variable's name)


class WrongUse(Exception):
    """Arguments that cannot be acted on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.handler(parsed))
    except WrongUse as error:
        print(f"reports {parsed.command}: {error}", file=sys.stderr)
        return WRONG_USE
    except ReportError as error:
        print(f"reports {parsed.command}: {error}", file=sys.stderr)
        return NO
    except OSError as error:
        print(f"reports {parsed.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description=(__doc__ or "").strip())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    check = commands.add_parser("verify", help="check a bundle against a trust folder")
    check.add_argument("bundle", type=Path)
    check.add_argument("--trust", type=Path, required=True, help="public keys, not from the bundle")
    check.add_argument("--json", action="store_true", help="print the checks as JSON")
    check.set_defaults(handler=_verify)

    make = commands.add_parser("auditor-keys", help="make an auditor's own keys in DIR")
    make.add_argument("directory", type=Path)
    make.add_argument("--organisation", default="Independent auditor")
    make.set_defaults(handler=_auditor_keys)

    trust = commands.add_parser("export-trust", help="write the public keys of both sides")
    trust.add_argument("--platform", type=Path, required=True)
    trust.add_argument("--auditor", type=Path, required=True)
    trust.add_argument("--out", type=Path, required=True)
    trust.set_defaults(handler=_export_trust)

    sign = commands.add_parser(
        "auditor-sign", help="recompute and sign a statement file or a staged report"
    )
    sign.add_argument("target", type=Path, help="a *.dsse.json file or a staging folder")
    sign.add_argument("--keys", type=Path, required=True)
    sign.add_argument("--trust", type=Path, help="default: the folder trust beside the keys")
    sign.add_argument("--evidence", type=Path, help="the measured evidence, for a statement")
    sign.set_defaults(handler=_auditor_sign)

    draw = commands.add_parser("render", help="draw the unsigned report of FACTS.json")
    draw.add_argument("facts", type=Path)
    draw.add_argument("--out", type=Path, required=True)
    draw.set_defaults(handler=_render)
    return parser


def _verify(arguments: argparse.Namespace) -> int:
    if not arguments.bundle.is_file():
        raise WrongUse(f"{arguments.bundle} is not a file; wanted a bundle.zip")
    if not arguments.trust.is_dir():
        raise WrongUse(f"{arguments.trust} is not a folder; wanted a trust folder (see VERIFY.txt)")
    result = verify(arguments.bundle, arguments.trust)
    if arguments.json:
        print(json.dumps(result.to_json(), indent=2, sort_keys=True))
    else:
        for check in result.checks:
            print(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
        if result.ok:
            print(f"The bundle holds: all {len(result.checks)} checks passed.")
        else:
            print(f"Do not rely on this bundle. Failed: {', '.join(result.failed)}")
    return DONE if result.ok else NO


def _auditor_keys(arguments: argparse.Namespace) -> int:
    keys = create_auditor_keys(
        arguments.directory, os.environ.get(PASSPHRASE), organisation=arguments.organisation
    )
    guard = "passphrase" if os.environ.get(PASSPHRASE) else f"file mode only; set {PASSPHRASE}"
    print(f"Auditor keys of {arguments.organisation} in {arguments.directory} ({guard}).")
    print(
        f"Give the platform the public files only: statement.pub.pem, manifest.pub, "
        f"root.pem, witness.vkey of {keys.note_name}"
    )
    return DONE


def _export_trust(arguments: argparse.Namespace) -> int:
    store = export_trust(arguments.platform, arguments.auditor, arguments.out)
    print((store.directory / "README.txt").read_text("utf-8"))
    return DONE


def _auditor_sign(arguments: argparse.Namespace) -> int:
    passphrase = os.environ.get(PASSPHRASE)
    if arguments.target.is_dir():
        auditor_sign(arguments.target, arguments.keys, trust=arguments.trust, passphrase=passphrase)
        print(f"Recomputed, countersigned and listed: {arguments.target}")
        return DONE
    if not arguments.target.is_file():
        raise WrongUse(f"{arguments.target} is neither a statement file nor a staging folder")
    if arguments.evidence is None:
        raise WrongUse("--evidence is missing; a statement is signed after recomputing it")
    signed = sign_statement(
        arguments.target.read_bytes(),
        arguments.keys,
        evidence=arguments.evidence,
        trust=arguments.trust,
        passphrase=passphrase,
    )
    write_private_file(arguments.target, signed, 0o644)
    print(f"Recomputed and signed: {arguments.target}")
    return DONE


def _render(arguments: argparse.Namespace) -> int:
    facts = ReportFacts.from_json(arguments.facts.read_bytes())
    write_private_file(arguments.out, render(facts), 0o644)
    print(f"{arguments.out}: unsigned report {facts.document.number}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
