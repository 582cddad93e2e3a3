"""Every hand-computed case of tests/golden/contracts.json, through services and database."""

from decimal import Decimal

import pytest

from metering.cases import Case, play
from metering.refusal import Refusal
from portal.billing.models import JournalEntry
from tests.metering.golden_cases import GOLDEN, Json, case_files, read_back
from tests.portal.golden_database import Stage, settle
from tests.portal.golden_database import stage as stage

AMOUNTS = ("kind", "fee", "holdback", "net", "taxable", "tax", "payable", "status")


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden["id"] for golden in GOLDEN])
def test_golden_through_the_database(stage: Stage, golden: Json) -> None:
    """getlago/lago-api#5560: what is stored is what the preview said, to the cent."""
    answers = []
    for number, value in enumerate(case_files(golden)):
        stored = settle(stage, value, f"{golden['id']}-{number}")
        preview = play(Case.from_json(value)).to_json()
        assert [_amounts(told) for told in stored["documents"]] == [
            _amounts(told) for told in preview["documents"]
        ], "preview and persist differ"
        answers.append(stored)
    if "float_input" in golden["expect"]:
        answers[0]["float_input"] = _with_a_float(golden)
    assert read_back(golden, answers) == golden["expect"]
    postings = JournalEntry.objects.all()
    assert sum((entry.amount for entry in postings), Decimal(0)) == 0


def _amounts(told: Json) -> list[str]:
    document = told["document"]
    return [document[name] for name in AMOUNTS] + [
        line["fee_line"]["amount"] for line in document["lines"]
    ]


def _with_a_float(golden: Json) -> str:
    case = case_files(golden)[0]
    case["savings"][0]["point"] = float(golden["given"]["price"])
    with pytest.raises(Refusal, match="decimal text"):
        Case.from_json(case)
    return "rejected"
