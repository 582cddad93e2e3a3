"""Both sides sign, and still: the evidence decides (T7, T8, T15, T16).

Every list is signed by both and what it lists is wrong: figures that do not come from the evidence,
evidence edited before signing, a report or a statement that belongs to another bundle, a report cut
back to before the auditor signed it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.bundle import BILLING, REPORT, STATEMENT
from reports.canonical import sha256_file
from reports.keys import LOG_ORIGIN
from reports.log import TransparencyLog
from reports.verify import verify
from tests.reports.bundles import Made, edited, judged, more_money, stated, unpacked
from tests.reports.parties import Sides
from tests.reports.story import Story, forge, seal_again

LIES: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("one cent more", more_money, "fee-recomputed"),
    ("a higher bound", stated("measurement.uplift.lower_95", "9.9"), "uplift-recomputed"),
    ("a higher estimate", stated("measurement.uplift.point", "9.9"), "uplift-recomputed"),
    ("a slower baseline", stated("measurement.baseline.samples_per_second", "1"),
     "uplift-recomputed"),
    ("a slow stack found that nobody stated",
     stated("measurement.baseline.as_found",
            {"stack": "onnxruntime", "version": "1", "configuration": "one by one",
             "samples_per_second": "1", "state": "VALID"}), "uplift-recomputed"),
    ("another stack", stated("measurement.baseline.stack", "openvino"), "uplift-recomputed"),
    ("better accuracy", stated("measurement.accuracy.min_cosine", "1.5"), "uplift-recomputed"),
    ("another model", stated("measurement.mix.model_sha256", "0" * 64), "uplift-recomputed"),
    ("another plan", stated("measurement.plan.digest", "0" * 64), "uplift-recomputed"),
    ("a plan that is not short", stated("measurement.plan.short_run", False),
     "uplift-recomputed"),
    ("another kernel", stated("measurement.search.package_manifest_sha256", "0" * 64),
     "uplift-recomputed"),
    ("prettier dots", stated("measurement.uplift.ratios", ["9.9"] * 6), "uplift-recomputed"),
    ("a quieter machine", stated("measurement.aa.hi", "0.000001"), "uplift-recomputed"),
    ("more volume", stated("usage.samples", "9000000000"), "fee-recomputed"),
    ("fewer duplicates", stated("usage.duplicates", "0"), "fee-recomputed"),
    ("more savings", stated("savings.billable", "999.00"), "fee-recomputed"),
    ("savings without cents", stated("savings.bound", "0"), "fee-recomputed"),
    ("another price", stated("savings.price_per_core_hour", "0.48"), "fee-recomputed"),
    ("another number", stated("invoice.number", "INV-2026-0008"), "fee-recomputed"),
    ("another period", stated("period.start", "2026-10-01T00:00:00Z"), "fee-recomputed"),
    ("another zone", stated("period.zone", "UTC"), "fee-recomputed"),
    ("a later baseline", stated("measurement.baseline.frozen_at", "2026-01-01T00:00:00Z"),
     "uplift-recomputed"),
    ("another machine", stated("measurement.system.fingerprint", "0" * 64), "uplift-recomputed"),
    ("another traffic", stated("measurement.mix.traffic", []), "uplift-recomputed"),
    ("a dearer search", stated("measurement.search.cost", "99"), "uplift-recomputed"),
    ("a faster result", stated("measurement.uplift.optimised_samples_per_second", "99999"),
     "uplift-recomputed"),
    ("energy that nothing measured",
     stated("measurement.uplift.energy",
            {"source": "rapl", "uncertainty": "0.05", "baseline_j_per_sample": "2",
             "optimised_j_per_sample": "1", "point": "1", "lo": "0.9", "hi": "1.1"}),
     "uplift-recomputed"),
    ("a draft", stated("document.status", "draft"), "facts"),
]  # fmt: skip


# One of each kind always; the long list where time is not short.
QUICK_LIES = {"one cent more", "a higher bound", "more volume", "a draft", "another machine"}


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        pytest.param(*lie, id=lie[0], marks=() if lie[0] in QUICK_LIES else pytest.mark.slow)
        for lie in LIES
    ],
)
def test_a_lie_that_both_sides_signed_is_named(
    story: Story,
    sides: Sides,
    tmp_path: Path,
    name: str,
    change: Callable[[dict[str, Any]], None],
    check: str,
) -> None:
    """All signatures are right; the figures do not come from the evidence."""
    bundle = forge(story, sides, tmp_path / "folder", tmp_path / "b.zip", change=change)
    found = verify(bundle, sides.trust_dir)
    assert check in found.failed
    assert not {"digests", "manifest-platform", "measurement-statement"} & set(found.failed)


def test_an_edited_log_that_both_sides_signed_is_named(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    """Failure 13: the evidence was edited before signing; the log no longer fits its own digest."""
    changed = edited(story, tmp_path)
    logs = sorted(changed.evidence.glob("uplift/runs/*other/mlperf_log_detail.txt"))
    text = logs[-1].read_text()
    logs[-1].write_text(text.replace('"result_samples_per_second", "value": ',
                                     '"result_samples_per_second", "value": 1'))  # fmt: skip
    assert logs[-1].read_text() != text
    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip")
    assert set(verify(bundle, sides.trust_dir).failed) == {"uplift-recomputed", "fee-recomputed"}


def test_a_candidate_timed_before_the_baseline_is_named(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T16: the baseline was chosen after the candidate's result was seen."""
    changed = edited(story, tmp_path)
    path = changed.evidence / "baseline" / "baseline.json"
    frozen_at = story.facts.measurement.baseline.frozen_at
    later = "2027-01-01T00:00:00Z"
    assert frozen_at in path.read_text()
    path.write_text(path.read_text().replace(frozen_at, later))

    def restate(facts: dict[str, Any]) -> None:
        facts["measurement"]["baseline"]["frozen_at"] = later
        facts["measurement"]["baseline"]["sha256"] = sha256_file(path)

    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip", change=restate)
    found = verify(bundle, sides.trust_dir)
    details = {check.name: check.detail for check in found.checks}
    assert "before the baseline was frozen" in details["uplift-recomputed"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("contract.json", '"rate":"0.20"', '"rate":"0.30"'),
        ("pricebook.json", "0.048", "0.049"),
        ("usage/2026-11/events.jsonl", '"samples":', '"samples":1'),
        ("savings/2026-11.json", '"losses":"0"', '"losses":"1"'),
        ("invoice/INV-2026-0007.json", '"number":"INV', '"number":"XNV'),
    ],
)
def test_edited_money_that_both_sides_signed_is_named(
    story: Story, sides: Sides, tmp_path: Path, name: str, old: str, new: str
) -> None:
    changed = edited(story, tmp_path)
    path = changed.evidence / name
    text = path.read_text("utf-8").replace('"samples": ', '"samples":')
    if old not in text and name == "contract.json":
        old, new = '"rate":"0.2"', '"rate":"0.3"'
    assert old in text, text[:400]
    path.write_text(text.replace(old, new, 1), "utf-8")
    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip")
    assert verify(bundle, sides.trust_dir).failed == ("fee-recomputed",)


def test_the_report_of_another_bundle_is_named(
    made: Made, story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T7: a right report, signed by both, in the wrong bundle, under a fresh list."""
    other = forge(
        story,
        sides,
        tmp_path / "other",
        tmp_path / "other.zip",
        change=stated("document.number", "R-2026-0099"),
    )
    assert verify(other, sides.trust_dir).ok
    folder = unpacked(made, tmp_path)
    shutil.copy(tmp_path / "other" / REPORT, folder / REPORT)
    log = TransparencyLog(tmp_path / "log2", LOG_ORIGIN)
    seal_again(folder, sides.platform, sides.auditor, log)
    assert judged(folder, sides).failed == ("pdf-rendered",)


def test_statements_of_another_bundle_are_named(
    made: Made, story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T8: the same measurement billed under another number."""
    forge(
        story,
        sides,
        tmp_path / "other",
        tmp_path / "other.zip",
        change=stated("document.number", "R-2026-0099"),
    )
    folder = unpacked(made, tmp_path)
    shutil.copy(tmp_path / "other" / BILLING, folder / BILLING)
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "l", LOG_ORIGIN))
    assert "statements-agree" in judged(folder, sides).failed
    shutil.copy(made.folder / STATEMENT, folder / BILLING)
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "m", LOG_ORIGIN))
    assert "billing-statement-content" in judged(folder, sides).failed


def test_a_report_without_the_auditors_signature_is_named(
    made: Made, sides: Sides, tmp_path: Path
) -> None:
    """T15: cut back to the certified revision; no PDF tool can see it, the roles can."""
    folder = unpacked(made, tmp_path)
    data = (folder / REPORT).read_bytes()
    ends = [at for at in range(len(data)) if data.startswith(b"%%EOF", at)]
    (folder / REPORT).write_bytes(data[: ends[-2] + 6])
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "l", LOG_ORIGIN))
    assert judged(folder, sides).failed == ("pdf-signatures",)
