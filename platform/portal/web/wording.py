"""Contract and plan in words: what each term means to somebody who did not write it.

In: the stored JSON of `metering.contract.Contract` and `metering.plan.MeasurementPlan`. Out: (term,
words) rows. A term that is absent is said to be absent; nothing is left out because it is zero.
"""

from collections.abc import Mapping
from typing import Any

from metering.plan.accuracy_floor import floor_from_json, floor_words
from portal.web.formats import duration, joined, money, number, percent

Rows = tuple[tuple[str, str], ...]

BOUNDS = {
    "lower_95": "the one-sided 95 % lower bound of the measured uplift: the savings are at least "
    "this with 95 % confidence",
    "point": "the point estimate of the measured uplift",
}
OPTIONS = {
    "A": "A: part of the savings is stipulated; for pilots only",
    "B": "B: measured uplift times metered volume",
    "C": "C: whole-bill regression",
    "D": "D: calibrated simulation; never bills",
}
POLICIES = {
    "fixed": "fixed: a newer stock stack does not change it during the contract",
    "reset": "reset: a re-measured stock stack counts from its date",
    "ratchet": "ratchet: the baseline cost never rises",
    "glide": "glide: a re-measured stock stack counts by a stated fraction",
}
ARRANGEMENTS = {
    "padded": "batches padded to their longest sample",
    "single": "one sample at a time",
    "grouped": "batches of like lengths",
    "ragged": "without padding",
}


def contract_rows(contract: Mapping[str, Any]) -> Rows:
    """Every term that decides money, in words."""
    currency = contract["currency"]
    return (
        ("Provider", _party(contract["provider"])),
        ("Customer", _party(contract["customer"])),
        ("Auditor", str(contract["auditor"])),
        ("Valid from", str(contract["valid_from"])),
        ("Currency", currency),
        ("Zone", f"{contract['zone']}; a month is [first midnight, next first midnight) there"),
        ("Our share of the savings", _tiers(contract["tiers"], currency)),
        ("Savings are billed on", BOUNDS.get(contract["bound"], contract["bound"])),
        ("Fee cap", _cap(contract, currency)),
        ("Minimum fee", _amount(contract["minimum"], currency, "none; no savings, no fee")),
        ("Losses", "carried forward and set off against later savings"
         if contract["carry_forward"] else "not carried forward"),
        ("Holdback", _holdback(contract)),
        ("Search cost", _recoupment(contract["recoupment"], currency)),
        ("Tax", _tax(contract)),
        ("Baseline policy", _policy(contract["baseline_policy"])),
        ("Payment", f"due {contract['payment_days']} days after issue"),
        ("Rounding", "half up, once per invoice line, to the currency's minor unit"),
    )  # fmt: skip


def plan_rows(plan: Mapping[str, Any]) -> Rows:
    """Every choice of the measurement plan, in words."""
    sweep, seeds = plan["sweep"], plan["seeds"]
    return (
        ("Plan", str(plan["plan_id"])),
        ("Method version", str(plan["method_version"])),
        ("Option", OPTIONS.get(plan["option"], plan["option"])),
        ("Scenario", f"MLPerf LoadGen {plan['scenario']}; not verified by MLCommons"),
        ("Precision, both arms", str(plan["precision"])),
        ("Cores, both arms", f"{joined(plan['cores'])} ({len(plan['cores'])} in all)"),
        ("Length of one run", f"at least {duration(plan['run_seconds'])}"),
        ("Pairs", f"{plan['pairs']} interleaved pairs in random order, after one warm-up pair"),
        ("A/A gate", f"{plan['aa_pairs']} pairs of the stock stack against itself first"),
        ("Smallest uplift claimed", percent(plan["minimum_effect"])),
        *_task_rows(plan),
        ("Accuracy floor", floor_of(plan)),
        ("Held out",
         f"{percent(plan['held_out_fraction'])} of the samples are never seen by the search"),
        ("Search budget", duration(plan["search_budget_s"])),
        ("Baseline sweep: stacks", joined(sweep["stacks"])),
        ("Baseline sweep: threads", joined(sweep["threads"])),
        ("Baseline sweep: arrangements",
         joined([ARRANGEMENTS.get(name, name) for name in sweep["arrangements"]])),
        ("Baseline sweep: batch sizes", joined(sweep["batches"])),
        ("Baseline sweep: graph optimisation", joined(sweep["graph_optimizations"])),
        ("Seeds", ", ".join(f"{name.replace('_', ' ')} {value}"
                            for name, value in sorted(seeds.items()))),
        ("Zone", str(plan["zone"])),
    )  # fmt: skip


def floor_of(plan: Mapping[str, Any]) -> str:
    """What answers are held to under a stored plan of either schema."""
    if "accuracy_floor_cosine" in plan:
        return (
            f"cosine of at least {plan['accuracy_floor_cosine']} to the stock outputs, per sample"
        )
    return floor_words(floor_from_json(plan["accuracy_floor"]))


def _task_rows(plan: Mapping[str, Any]) -> Rows:
    """What only the second document says: task, bounds of the scenario, whether a claim is made."""
    if "task" not in plan:
        return ()
    bounds = plan["bounds"] or {}
    words = {
        "target_latency_ns": lambda value: f"latency within {number(value)} ns",
        "percentile": lambda value: f"at percentile {value}",
        "samples_per_query": lambda value: f"{value} samples in a query",
    }
    return (
        ("Task", str(plan["task"]).replace("_", " ")),
        ("Bounds of the scenario",
         joined([words[name](value) for name, value in sorted(bounds.items(), reverse=True)])
         if bounds else "none"),
        ("Claim", "an uplift is claimed" if plan["claim"] else
         "none: a baseline alone, the model goes on at it, uplift 1.0"),
    )  # fmt: skip


def _party(party: Mapping[str, Any]) -> str:
    place = [party.get(name) for name in ("street", "postal_code", "city", "country", "tax_id")]
    return ", ".join([party["name"], *(str(part) for part in place if part)])


def _amount(value: Any, currency: str, absent: str) -> str:
    return absent if value is None else f"{money(value, currency)} per period"


def _tiers(tiers: list[Mapping[str, Any]], currency: str) -> str:
    if len(tiers) == 1:
        return f"{percent(tiers[0]['rate'], 2)} of all billable savings"
    parts, below = [], "0"
    for tier in tiers:
        rate = percent(tier["rate"], 2)
        if tier["upper"] is None:
            parts.append(f"{rate} above {money(below, currency)}")
        else:
            parts.append(f"{rate} from {number(below)} to {money(tier['upper'], currency)}")
            below = tier["upper"]
    return f"{joined(parts)}; each rate applies only inside its tier"


def _cap(contract: Mapping[str, Any], currency: str) -> str:
    if contract["cap"] is None:
        return "none"
    excess = {"forfeit": "what lies above is forfeited", "carry": "what lies above is carried over"}
    return f"{money(contract['cap'], currency)} per period; {excess[contract['cap_excess']]}"


def _holdback(contract: Mapping[str, Any]) -> str:
    if float(contract["holdback"]) == 0:
        return "none"
    when = {"release": "its tax is due at release", "issue": "its tax is due at issue"}
    return (
        f"{percent(contract['holdback'], 2)} of the fee stays unpaid until the audit; "
        f"{when[contract['holdback_tax']]}"
    )


def _recoupment(term: Mapping[str, Any] | None, currency: str) -> str:
    if term is None:
        return "carried by the provider"
    if term["kind"] == "pool":
        return (
            f"up to {money(term['amount'], currency)} is paid back from "
            f"{percent(term['share'], 2)} of the savings, on top of the share"
        )
    return f"{money(term['amount'], currency)} is spread over {term['months']} months of savings"


def _tax(contract: Mapping[str, Any]) -> str:
    reason = contract["tax_exemption_reason"]
    words = f"{percent(contract['vat'], 2)} VAT, category {contract['tax_category']} (EN 16931)"
    return f"{words}; {reason}" if reason else words


def _policy(policy: Mapping[str, Any]) -> str:
    words = POLICIES.get(policy["kind"], policy["kind"])
    return f"{words} ({percent(policy['fraction'], 2)})" if "fraction" in policy else words
