"""The hand-computed cases of tests/golden/contracts.json, written as case files and read back.

What a golden case gives becomes a contract and facts by the names of its fields, never by its id;
what it expects is read from answers by name in the same way. Nothing is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from metering.contract import BaselinePolicy, Recoupment, Tier, flat_share
from metering.contract.terms import POLICY_KINDS
from metering.decimals import to_text
from metering.savings import t_95_one_sided
from tests.metering.money_cases import contract

Json = dict[str, Any]

GOLDEN: list[Json] = json.loads(
    (Path(__file__).parents[1] / "golden" / "contracts.json").read_text()
)["cases"]
MONTH = "2026-01"
COSTS_BEFORE = ("baseline_per_mtok", "old", "new", "daily_savings")
SINCE = "2023-01-01T00:00:00Z"
DAY = "2026-01-{:02d}T12:00:00Z"


def case_files(golden: Json) -> list[Json]:
    """One case file for each alternative that a golden case gives."""
    return [_case(given, golden["title"]) for given in _alternatives(golden["given"])]


def _alternatives(given: Json) -> list[Json]:
    """Lists of independent inputs, each with what they share."""
    for name, one in (("audited_savings", "audited"), ("windows_days", "days")):
        if name in given:
            return [{**given, one: value} for value in given[name]]
    if "cases" in given:
        return [dict(each) for each in given["cases"]]
    if "standard_errors" in given:
        return [{**given, "baseline_id": shared} for shared in ("", "one")]
    return [given]


def _case(given: Json, title: str) -> Json:
    return {
        "schema": "ignition.fee-case.v2",
        "contracts": [_contract(given, title)],
        "state": None,
        "periods": _periods(given),
        "savings": list(_savings(given)),
        "gates": [
            {"period": MONTH, "model": row["model"], "system": "s", "reason": row["gate"]}
            for row in _rows(given, "gate")
            if row["gate"]
        ],
        "costs": list(_costs(given)),
        "usage": list(_usage(given)),
        "steps": _steps(given),
        "allocation": (
            {f"centre-{n}": str(weight) for n, weight in enumerate(given["weights"])}
            if "weights" in given
            else None
        ),
    }


def _contract(given: Json, title: str) -> Json:
    """Terms by name; what the golden case does not name bills savings as they are."""
    named = [kind for kind in POLICY_KINDS if kind in title]
    changes: Json = {
        "currency": given.get("currency", "EUR"),
        "zone": given.get("zone", "Europe/Berlin"),
        "valid_from": datetime(2023, 1, 1, tzinfo=UTC),
        "tiers": flat_share(given.get("share", given.get("unit_price", "1"))),
        "baseline_policy": BaselinePolicy(
            named[0] if named else "fixed",
            Decimal(given["glide"]) if "glide" in given else None,
        ),
    }
    if "tiers" in given:
        changes["tiers"] = tuple(
            Tier(None if upper is None else Decimal(upper), Decimal(rate))
            for upper, rate in given["tiers"]
        )
    if "pool" in given:
        share = Decimal(given["recoup_share"])
        changes["recoupment"] = Recoupment("pool", Decimal(given["pool"]), share=share)
    if "amortise" in given:
        amount = Decimal(given["amortise"])
        changes["recoupment"] = Recoupment("amortised", amount, months=given["months"])
    for name in ("cap", "minimum", "holdback", "vat"):
        if name in given:
            changes[name] = Decimal(given[name])
    return contract(**changes).to_json()


def _periods(given: Json) -> object:
    if "start" in given:
        return {"start": given["start"], "count": given["months"]}
    if isinstance(given.get("months"), list):
        return given["months"]
    return None


def _rows(given: Json, name: str) -> list[Json]:
    """The lines of a golden case that have a field of that name."""
    return [row for row in given.get("lines", []) if isinstance(row, Mapping) and name in row]


def _stated(point: str, period: str = MONTH, model: str = "A", **more: object) -> Json:
    return {"period": period, "model": model, "system": "s", "point": point, **more}


def _savings(given: Json) -> list[Json]:
    uncertain: Json = {
        name: given[name]
        for name in ("standard_error", "df")
        if name in given
    }  # fmt: skip
    if "counterfactual_cost" in given:
        uncertain["counterfactual"] = given["counterfactual_cost"]
    for name in ("monthly_savings", "savings", "uncapped_fee", "price", "quantity", "amount"):
        value = given.get(name)
        if isinstance(value, list):
            return [
                _stated(point, f"2026-{month:02d}") for month, point in enumerate(value, start=1)
            ]
        if value is not None:
            return [_stated(value.removeprefix("-"), **uncertain)]
    stated = _rows(given, "savings")
    if stated:
        return [_stated(row["savings"], model=row["model"]) for row in stated]
    plain = given.get("net_lines") or [v for v in given.get("lines", []) if isinstance(v, str)]
    errors = given.get("standard_errors", [])
    return [_stated(point, model=f"M{n}") for n, point in enumerate(plain)] + [
        _stated(
            "100000", model=f"M{n}", standard_error=error, df=29, baseline_id=given["baseline_id"]
        )
        for n, error in enumerate(errors)
    ]


def _costs(given: Json) -> list[Json]:
    def cost(of: str, value: str, since: str = SINCE, model: str = "A") -> Json:
        return {"of": of, "model": model, "system": "s", "since": since, "cost": value}

    history = [
        *given.get("baseline_history", []),
        *(given[name] for name in COSTS_BEFORE if name in given),
        *(given[name]["baseline"] for name in ("before", "after") if name in given),
        *(["1"] if "event" in given else []),
    ]  # fmt: skip
    # The last measured baseline counts from the middle of the month, the others from before it.
    dates = [f"2023-{month:02d}-01T00:00:00Z" for month in range(1, len(history))]
    late = [DAY.format(16)] if "after" in given else [f"2023-{len(history):02d}-01T00:00:00Z"]
    found = [
        cost("baseline", value, since)
        for value, since in zip(history, [*dates, *late], strict=False)
    ]
    if history and "baseline_history" not in given:
        found.append(cost("optimised", given.get("optimised_per_mtok", "0")))
    for row in _rows(given, "mtok"):
        found += [
            cost(of, row[of], model=row["model"])
            for of in ("baseline", "optimised")
        ]  # fmt: skip
    return found


def _usage(given: Json) -> list[Json]:
    def usage(units: str, at: str, model: str = "A") -> Json:
        return {"model": model, "system": "s", "at": at, "units": units}

    days = (usage("1", DAY.format(day)) for day in range(1, given.get("days", 0) + 1))
    parts = {"before": DAY.format(3), "after": DAY.format(20)}
    return list(
        chain(
            days,
            ([usage(given["mtok"], DAY.format(3))] if "mtok" in given else []),
            (usage(given[name]["mtok"], at) for name, at in parts.items() if name in given),
            (usage(row["mtok"], DAY.format(3), row["model"]) for row in _rows(given, "mtok")),
            ([usage("1", given["event"])] if "event" in given else []),
        )
    )


def _steps(given: Json) -> list[Json] | None:
    """What happens after the invoice, if anything does."""
    after: list[Json] = []
    if "disputed" in given:
        lines = [str(index + 1) for index in given["disputed"]]
        after = [{"step": "dispute", "lines": lines}]
    elif "audited" in given:
        found = {"model": "A", "system": "s", "point": given["audited"]}
        after = [{"step": "audit", "savings": [found]}]
    elif "net_lines" in given:
        after = [
            {"step": "credit", "lines": {str(n): amount}, "reason": "returned"}
            for n, amount in enumerate(given["net_lines"], start=1)
        ]
    elif given.get("amount", "").startswith("-"):
        after = [{"step": "credit", "lines": None, "reason": "returned"}]
    if not after:
        return None
    return [{"step": "bill", "period": MONTH}, *({**step, "document": "CASE-1"} for step in after)]


def read_back(golden: Json, answers: Sequence[Json]) -> Json:
    """Every expected value, found by its name in the answers."""
    return {name: _READERS[name](answers, golden) for name in golden["expect"]}


def plain(value: Any) -> Any:
    """Amounts that are not rounded to a minor unit, compared by value: 8.0 is 8."""
    return to_text(Decimal(value).normalize()) if isinstance(value, str) else value


def _bills(answers: Sequence[Json]) -> list[Json]:
    return [
        step["breakdown"]
        for answer in answers
        for step in answer["steps"]
        if step["step"] == "bill"
    ]


def _first(name: str) -> Any:
    return lambda answers, golden: _bills(answers)[0][name]


def _documents(answers: Sequence[Json], kind: str) -> list[Json]:
    told = (document for answer in answers for document in answer["documents"])
    return [row["document"] for row in told if row["document"]["kind"] == kind]


def _like(wanted: str, found: str) -> str:
    """`found` as the golden case writes it, when both are the same number."""
    return wanted if Decimal(wanted) == Decimal(found) else found


def _unrounded(name: str) -> Any:
    def read(answers: Sequence[Json], golden: Json) -> Any:
        return _like_all(golden, [bill[name] for bill in _bills(answers)])

    return read


def _like_all(golden: Json, found: list[str]) -> Any:
    for name in ("net_savings", "billable_savings", "savings", "effective_baseline"):
        wanted = golden["expect"].get(name)
        if isinstance(wanted, str):
            return _like(wanted, found[-1])
        if wanted is not None:
            return [_like(w, f) for w, f in zip(wanted, found, strict=True)]
    raise AssertionError(golden["id"])


def _invoice(answers: Sequence[Json], golden: Json) -> Json:
    document = _documents(answers[:1], "invoice")[0]
    names = {"fee": "fee", "holdback": "holdback", "net": "net", "vat": "tax", "payable": "payable"}
    return {name: document[field] for name, field in names.items()}


def _audits(answers: Sequence[Json], golden: Json) -> list[Json]:
    names = {
        "document": "document", "net": "net", "vat": "tax", "gross": "gross",
        "cumulative": "cumulative",
    }  # fmt: skip
    outcomes = [
        step["outcome"] for answer in answers for step in answer["steps"] if "outcome" in step
    ]
    return [{name: outcome[field] for name, field in names.items()} for outcome in outcomes]


def _disputed(name: str) -> Any:
    return lambda answers, golden: answers[0]["steps"][-1]["dispute"][name]


def _joint(index: int) -> Any:
    def read(answers: Sequence[Json], golden: Json) -> str:
        name = ("independent", "shared_baseline")[index]
        return _like(golden["expect"][name], answers[index]["steps"][0]["standard_error"])

    return read


def _credited(answers: Sequence[Json], golden: Json) -> str:
    notes = _documents(answers, "credit_note")
    return to_text(-sum((Decimal(note["payable"]) for note in notes), Decimal(0)))


def _lines(answers: Sequence[Json], golden: Json) -> list[str]:
    return [row["amount"] for row in _bills(answers)[0]["lines"] if row["kind"] == "share"]


def _effective(answers: Sequence[Json], golden: Json) -> Any:
    return _like_all(golden, [item["effective"] for item in answers[0]["baselines"]])


_READERS: dict[str, Any] = {
    "fee": _first("fee"),
    "amount": _first("fee"),
    "status": _first("status"),
    "excess": _first("excess"),
    "billable_savings": _unrounded("chargeable"),
    "net_savings": _unrounded("net_savings"),
    "savings": _unrounded("net_savings"),
    "effective_baseline": _effective,
    "fees": lambda answers, golden: [bill["fee"] for bill in _bills(answers)],
    "lines": _lines,
    "invoice": _invoice,
    "audit": _audits,
    "allocations": lambda answers, golden: [
        list(answer["documents"][-1]["allocation"].values()) for answer in answers
    ],
    "independent": _joint(0),
    "shared_baseline": _joint(1),
    "collectible": _disputed("collectible"),
    "disputed": _disputed("disputed"),
    "period": lambda answers, golden: answers[0]["periods"][0]["label"],
    "hours": lambda answers, golden: [int(period["hours"]) for period in answers[0]["periods"]],
    "period_starts": lambda answers, golden: [
        period["label"] for period in answers[0]["periods"]
    ],
    "gross": lambda answers, golden: _documents(answers, "invoice")[0]["payable"],
    "sum_of_credit_notes": _credited,
    "minor_units": lambda answers, golden: answers[0]["documents"][0]["payable_minor_units"],
    # Whether a JSON number is refused is a question to the program, not to an answer.
    "float_input": lambda answers, golden: answers[0]["float_input"],
}  # fmt: skip


def stated_quantile_holds(golden: Json) -> bool:
    """Whether the t quantile that a golden case states is the one the program uses."""
    given = golden["given"]
    return "t_95_one_sided" not in given or t_95_one_sided(given["df"]) == Decimal(
        given["t_95_one_sided"]
    )
