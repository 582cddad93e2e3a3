"""What of an invoice may be assumed otherwise: the terms, the state and the lines of its own case.

In: the frozen savings record of an invoice. Out: every value that can be changed, as text, under
its place in the case; and for values given, the changes of the case. A measured line's savings are
worked out anew by the engine from its inputs. Nothing is written, nothing is priced here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from metering.cases.assumed import ASSUMED, assumed_line
from metering.contract import BaselinePolicy, VerifiedLine
from metering.contract.terms import BOUNDS, CAP_EXCESS, HOLDBACK_TAX, POLICY_KINDS
from metering.decimals import parse_decimal, to_text
from metering.refusal import Refusal
from metering.savings import SavingsLine
from portal.billing.models import SavingsRecord
from portal.billing.sandbox import case_of
from portal.billing.savings import VERIFIED_SCHEMA, BillingError, frozen_savings

DECIMAL, WHOLE, CHOICE = "decimal", "whole", "choice"
TERMS, STATE = "Contract", "State before the period"
WORDS = {
    "lower_95": "lower bound, one-sided 95 %", "point": "point estimate",
    "forfeit": "is forfeited", "carry": "is carried over",
}  # fmt: skip
YES_NO = (("true", "yes"), ("false", "no"))


@dataclass(frozen=True)
class Assumption:
    """One value of a case. `value` is text, "" for none; `place` is dotted, as in the URL."""

    place: str
    group: str
    label: str
    value: str
    kind: str = DECIMAL
    choices: tuple[tuple[str, str], ...] = ()
    optional: bool = False
    hint: str = ""


def assumptions(savings: SavingsRecord) -> tuple[Assumption, ...]:
    """Everything that may be changed about the fee of a record, in the order of the fee's steps."""
    case: Any = case_of(savings)
    return (
        *_of_lines(savings),
        *_of_state(case["state"], case["contracts"][0]),
        *_of_terms(case["contracts"][0]),
    )


def _of_terms(contract: Mapping[str, Any]) -> list[Assumption]:
    tiers = contract["tiers"]
    found = [_choice("bound", "Savings are billed on", contract["bound"], BOUNDS)]
    for number, tier in enumerate(tiers):
        named = f" of tier {number + 1}" if len(tiers) > 1 else ""
        found.append(_term(f"tiers.{number}.rate", f"Share{named}", tier["rate"],
                           hint="A fraction: 0.20 is 20 %."))  # fmt: skip
        if tier["upper"] is not None:
            found.append(_term(f"tiers.{number}.upper", f"Upper end{named}", tier["upper"]))
    recoupment = contract["recoupment"] or {}
    found += [
        _term(f"recoupment.{name}", label, recoupment[name], kind=kind)
        for name, label, kind in (
            ("amount", "Search cost to recoup", DECIMAL),
            ("share", "Share of the savings that pays it back", DECIMAL),
            ("months", "Months it is spread over", WHOLE),
        )
        if recoupment.get(name) is not None
    ]
    policy = contract["baseline_policy"]
    found += [
        _term("minimum", "Minimum fee", contract["minimum"], optional=True, hint="Empty: none."),
        _term("cap", "Fee cap", contract["cap"], optional=True, hint="Empty: none."),
        _choice("cap_excess", "What lies above the cap", contract["cap_excess"], CAP_EXCESS),
        _choice("carry_forward", "Losses are carried forward", contract["carry_forward"]),
        _term("holdback", "Holdback", contract["holdback"], hint="A fraction of the fee."),
        _choice("holdback_tax", "Tax of the holdback is due at", contract["holdback_tax"],
                HOLDBACK_TAX),
        _term("vat", "VAT rate", contract["vat"], hint="A fraction: 0.19 is 19 %."),
        _choice("baseline_policy.kind", "Baseline policy", policy["kind"], POLICY_KINDS),
        _term("baseline_policy.fraction", "Fraction of a glide", policy.get("fraction"),
              optional=True, hint="With glide only."),
    ]  # fmt: skip
    return found


def _term(name: str, label: str, value: Any, **more: Any) -> Assumption:
    return Assumption(f"contracts.0.{name}", TERMS, label, _text(value), **more)


def _choice(name: str, label: str, value: Any, allowed: tuple[str, ...] = ()) -> Assumption:
    choices = tuple((item, WORDS.get(item, item)) for item in allowed) or YES_NO
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Assumption(f"contracts.0.{name}", TERMS, label, text, CHOICE, choices)


def _of_state(state: Mapping[str, Any], contract: Mapping[str, Any]) -> list[Assumption]:
    names = [
        ("losses", "Losses brought forward", DECIMAL),
        ("deferred", "Excess deferred", DECIMAL),
    ]
    if contract["recoupment"] is not None:
        names += [("recouped", "Search cost recouped", DECIMAL),
                  ("instalments", "Instalments taken", WHOLE)]  # fmt: skip
        if state.get("recorded") is not None:
            names.append(("recorded", "Search cost recorded", DECIMAL))
    return [
        Assumption(f"state.{name}", STATE, label, _text(state[name]), kind)
        for name, label, kind in names
    ]


def _of_lines(savings: SavingsRecord) -> list[Assumption]:
    measured = _measured(savings)
    found: list[Assumption] = []
    for number, line in enumerate(frozen_savings(savings).lines):
        group = f"{line.model} on {line.system}" + (f", {line.segment}" if line.segment else "")
        told = measured.get(line.key)
        found.append(
            Assumption(f"savings.{number}.bills", group, "May bill", _yes(line.gate is None),
                       CHOICE, YES_NO, hint=line.gate or "")
        )  # fmt: skip
        if told is None:
            found += _stated(number, group, line)
        else:
            found += _inputs(number, group, told)
    return found


def _stated(number: int, group: str, line: VerifiedLine) -> list[Assumption]:
    place = f"savings.{number}"
    return [
        Assumption(f"{place}.point", group, "Savings, estimate", to_text(line.point)),
        Assumption(f"{place}.bound", group, "Savings, lower bound", to_text(line.bound),
                   hint="At most the estimate."),
        Assumption(f"{place}.counterfactual", group, "Counterfactual",
                   _text(line.counterfactual), optional=True, hint="Empty: not stated."),
    ]  # fmt: skip


def _inputs(number: int, group: str, line: SavingsLine) -> list[Assumption]:
    place = f"savings.{number}"
    labels = {
        "volume": ("Volume, samples", WHOLE, ""),
        "price_per_core_hour": (f"Price of a core-hour, {line.currency}", DECIMAL, ""),
        "cores": ("Cores", WHOLE, ""),
        "baseline_samples_per_second": ("Baseline, samples per second", DECIMAL, ""),
        "uplift_point": ("Uplift, estimate", DECIMAL, "A ratio: 0.25 is +25 %."),
        "uplift_lower_95": ("Uplift, lower bound", DECIMAL, "At most the estimate."),
    }
    found = [
        Assumption(f"{place}.{name}", group, label, _text(getattr(line, name)), kind, hint=hint)
        for name, (label, kind, hint) in labels.items()
    ]
    found.append(
        Assumption(f"{place}.remeasured", group, "Re-measured baseline, samples per second", "",
                   optional=True, hint="Counts as the baseline policy says. Empty: none.")
    )  # fmt: skip
    return found


def _measured(savings: SavingsRecord) -> dict[tuple[str, str, str], SavingsLine]:
    """The measured lines behind a record by their key; none where savings were stated."""
    if savings.document["schema"] == VERIFIED_SCHEMA:
        return {}
    lines = [SavingsLine.from_json(line) for line in savings.document["lines"]]
    return {(line.model, line.system, line.segment): line for line in lines}


def case_changes(savings: SavingsRecord, given: Mapping[str, str]) -> dict[str, object]:
    """The changes of `case_of(savings)` for new values by place; all the others stay.

    `given` holds only values that differ. Refusal names the place. BillingError when a measured
    line's inputs no longer give its billed savings: then nothing is compared.
    """
    known = {item.place: item for item in assumptions(savings)}
    for place in given:
        if place not in known:
            raise Refusal(place, given[place], "an assumption of this invoice")
    changes: dict[str, object] = {
        place: _value(known[place], text)
        for place, text in given.items()
        if not place.startswith(("savings.", "contracts.0.baseline_policy."))
    }
    now = {place: given.get(place, item.value) for place, item in known.items()}
    policy = _policy(now)
    if any(place.startswith("contracts.0.baseline_policy.") for place in given):
        changes["contracts.0.baseline_policy"] = policy.to_json()
    changes |= _line_changes(savings, given, now, policy)
    return changes


def _policy(now: Mapping[str, str]) -> BaselinePolicy:
    fraction = now["contracts.0.baseline_policy.fraction"]
    return BaselinePolicy(
        now["contracts.0.baseline_policy.kind"],
        parse_decimal(fraction, "contract.baseline_policy.fraction") if fraction else None,
    )


def _line_changes(
    savings: SavingsRecord, given: Mapping[str, str], now: Mapping[str, str], policy: BaselinePolicy
) -> dict[str, object]:
    changes: dict[str, object] = {}
    measured = _measured(savings)
    lines = frozen_savings(savings).lines
    for number, line in enumerate(lines):
        place = f"savings.{number}"
        touched = {name.removeprefix(f"{place}."): text for name, text in given.items()
                   if name.startswith(f"{place}.")}  # fmt: skip
        told = measured.get(line.key)
        moved = bool(touched) or bool(now.get(f"{place}.remeasured"))
        if told is None:
            changes |= {f"{place}.{name}": text or None for name, text in touched.items()
                        if name != "bills"}  # fmt: skip
        elif moved:
            found = _assume(told, place, touched, now, policy)
            changes |= {
                f"{place}.point": to_text(found.point),
                f"{place}.bound": to_text(found.bound),
                f"{place}.counterfactual": to_text(found.counterfactual),
                f"{place}.volume": found.volume,
            }
    if any(place.endswith(".bills") for place in given):
        changes["gates"] = [
            {"period": savings.period.label, "model": line.model, "system": line.system,
             "reason": line.gate or "assumed not to bill"}
            for number, line in enumerate(lines)
            if now[f"savings.{number}.bills"] == "false"
        ]  # fmt: skip
    return changes


def _assume(
    line: SavingsLine,
    place: str,
    touched: Mapping[str, str],
    now: Mapping[str, str],
    policy: BaselinePolicy,
) -> SavingsLine:
    """The measured line under its new inputs; unchanged inputs must give the billed line."""
    same = assumed_line(line, {}, kept=line.kept)
    if (same.point, same.bound, same.counterfactual) != (
        line.point, line.bound, line.counterfactual,
    ):  # fmt: skip
        raise BillingError(
            f"{line.model} on {line.system}: its frozen inputs do not give its savings; nothing"
            " is compared"
        )
    remeasured = now[f"{place}.remeasured"]
    try:
        return assumed_line(
            line,
            {name: text for name, text in touched.items() if name in ASSUMED},
            kept=line.kept or now[f"{place}.bills"] == "true",
            remeasured=parse_decimal(remeasured, "remeasured") if remeasured else None,
            policy=policy,
        )
    except Refusal as error:
        raise error.inside(place) from error


def _value(item: Assumption, text: str) -> object:
    """What a case holds for text in a form: a number, decimal text, yes or no, or nothing."""
    if item.kind == CHOICE and item.choices == YES_NO:
        return text == "true"
    if not text:
        return None
    return int(text) if item.kind == WHOLE else text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return to_text(value) if isinstance(value, Decimal) else str(value)


def _yes(value: bool) -> str:
    return "true" if value else "false"
