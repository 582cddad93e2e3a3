"""Baselines, searches, packages, measurements: stored once, by the platform, after signing."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from portal.runs.models import Baseline, Measurement
from portal.runs.services import (
    BaselineFigures,
    MeasuredFigures,
    RunsError,
    baseline_freeze,
    measurement_record,
    tuning_record,
)


def figures(rate: str = "400") -> BaselineFigures:
    return BaselineFigures(
        stack="onnxruntime",
        stack_version="1.24",
        threads=2,
        arrangement="single",
        batch=1,
        samples_per_second=Decimal(rate),
        frozen_at=datetime(2026, 10, 1, tzinfo=UTC),
        document={"samples_per_second": rate},
    )


def freeze(cast, version, home, actor=None, rate="400") -> Baseline:
    folder = home / "evidence" / "b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "baseline.json").write_text("{}")
    return baseline_freeze(
        actor=actor or cast.platform,
        contract_version=version,
        figures=figures(rate),
        document_file=folder / "baseline.json",
        evidence=folder,
    )


def test_no_baseline_before_all_have_signed(cast, draft, home):
    with pytest.raises(RunsError, match="not signed by all three"):
        freeze(cast, draft, home)


def test_only_the_platform_stores_results(cast, agreed, home):
    for who in ("owner", "auditor", "operator"):
        with pytest.raises(RunsError, match="only the platform"):
            freeze(cast, agreed, home, actor=getattr(cast, who))


def test_one_baseline_per_contract_version(cast, agreed, home):
    first = freeze(cast, agreed, home)
    again = freeze(cast, agreed, home, rate="900")
    assert (again.pk, again.samples_per_second) == (first.pk, Decimal("400"))
    assert Baseline.objects.count() == 1


def test_search_ends_once(cast, measured):
    tuning = measured.package.tuning
    again = tuning_record(
        actor=cast.platform,
        tuning=tuning,
        trials=999,
        accepted=999,
        rejected={},
        seconds=Decimal(1),
        cost=Decimal(0),
        currency="EUR",
    )
    assert (again.trials, again.accepted) == (12, 3)


def test_measurement_is_recorded_once(cast, measured, home):
    again = measurement_record(
        actor=cast.platform,
        measurement=measured,
        figures=MeasuredFigures(
            aa={},
            uplift={},
            pairs=[],
            accuracy={},
            uplift_point=Decimal(9),
            uplift_lower_95=Decimal(9),
            kept=True,
            reason="",
        ),
        evidence=home / "evidence" / "m1",
    )
    assert again.uplift_point == Decimal("0.25")
    assert Measurement.objects.get().uplift_point == Decimal("0.25")


def test_evidence_digest_is_that_of_the_files(measured, home):
    from reports.statement import evidence_digest

    assert measured.evidence_sha256 == evidence_digest(home / "evidence" / "m1")
    (home / "evidence" / "m1" / "baseline" / "baseline.json").write_text("changed")
    assert measured.evidence_sha256 != evidence_digest(home / "evidence" / "m1")
