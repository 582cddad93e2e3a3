"""Energy in a report: what a meter read, or that none did; forged or left out, it is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering.uplift.energy import METER
from reports.facts import EnergyFacts, UpliftFacts
from reports.statement import MEASUREMENT_TYPE, read_statement
from reports.verify import verify
from reports.view import view
from tests.metering.meters import constant_power
from tests.reports.bundles import stated
from tests.reports.parties import Sides
from tests.reports.story import Story, forge, tell, unpack_recording

MEASURED = {
    "source": "rapl", "uncertainty": "0.05", "baseline_j_per_sample": "2",
    "optimised_j_per_sample": "1", "point": "1", "lo": "0.9", "hi": "1.1",
}  # fmt: skip


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The recorded measurement as if a meter had read a constant 100 W beside it."""
    evidence = tmp_path_factory.mktemp("metered") / "evidence"
    unpack_recording(evidence)
    constant_power(evidence, 100)
    return tell(evidence)


def _left_out(facts: dict[str, Any]) -> None:
    del facts["measurement"]["uplift"]["energy"]


def test_a_report_prints_the_energy_that_was_measured(
    metered: Story, sides: Sides, tmp_path: Path
) -> None:
    energy = metered.facts.measurement.uplift.energy
    assert energy is not None
    assert energy.measured
    words = view(metered.facts)["uplift"]["energy"]
    assert words.startswith(f"Energy: {energy.optimised_j_per_sample} J a sample, baseline ")
    assert words.endswith("read from meter, off by up to 1.00 %. No fee rests on it.")
    assert f"evidence/{METER}" in read_statement(metered.payload, MEASUREMENT_TYPE).subjects
    bundle = forge(metered, sides, tmp_path / "folder", tmp_path / "b.zip")
    assert verify(bundle, sides.trust_dir).ok


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_left_out, id="left out"),
        pytest.param(stated("measurement.uplift.energy.point", "9.9"), id="a larger gain"),
        pytest.param(stated("measurement.uplift.energy.source", "rapl"), id="another source"),
        pytest.param(
            stated("measurement.uplift.energy", {"reason": "no counter here"}), id="not measured"
        ),
    ],
)
def test_energy_that_the_meter_does_not_show_is_named(
    metered: Story, sides: Sides, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    bundle = forge(metered, sides, tmp_path / "folder", tmp_path / "b.zip", change=change)
    found = verify(bundle, sides.trust_dir)
    details = {check.name: check.detail for check in found.checks}
    assert details["uplift-recomputed"].startswith("energy")


def test_a_report_says_that_none_was_measured_and_an_older_one_is_silent(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    words = view(story.facts)["uplift"]["energy"]
    assert words.startswith("Energy: not measured (no counter was read around run ")
    older = forge(story, sides, tmp_path / "folder", tmp_path / "b.zip", change=_left_out)
    assert verify(older, sides.trust_dir).ok
    uplift = story.facts.measurement.uplift.model_dump()
    silent = UpliftFacts.model_validate({**uplift, "energy": None})
    assert "energy" not in silent.model_dump()


@pytest.mark.parametrize(
    "document",
    [{}, {**MEASURED, "reason": "none"}, {k: v for k, v in MEASURED.items() if k != "lo"}],
)
def test_energy_is_all_its_figures_or_a_reason(document: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="wanted every figure or the reason alone"):
        EnergyFacts.model_validate(document)
    assert EnergyFacts.model_validate(MEASURED).measured
    assert not EnergyFacts.model_validate({"reason": "none"}).measured
