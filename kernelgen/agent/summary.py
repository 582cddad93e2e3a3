"""From searches and verdicts to the records a caller gets and a package keeps.

In: what the search found, what was chosen, what the judge said. Out: plain records and JSON.
Never here: a decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kernelgen.agent.gate import Chosen
from kernelgen.agent.records import Trial
from kernelgen.agent.results import ModelGate, OperatorResult
from kernelgen.agent.search import Found
from kernelgen.judge.verdict import Verdict
from kernelgen.schedule import Schedule


def model_gate(verdict: Verdict, chosen: Chosen) -> ModelGate:
    """The closing verdict in the search's words; ratio 1 when the defaults were packaged."""
    return ModelGate(
        correct=verdict.accepted,
        reason=verdict.reason,
        max_error_ratio=verdict.max_error_ratio,
        rounds=verdict.rounds,
        ratio=verdict.ratio_vs_incumbent or 1.0,
        ratio_lo=verdict.ratio_lo or 1.0,
        ratio_hi=verdict.ratio_hi or 1.0,
        kept=chosen.kept,
        dropped=chosen.dropped,
    )


def operator_result(
    name: str,
    share: float,
    found: Found | None,
    chosen: Mapping[str, Schedule],
    default: Schedule,
    default_ns: float | None,
) -> OperatorResult:
    """One row of the result. The ratio is that of the race against the default; where Ctrl-C left
    no time for it, the product of the wins with the last one's interval.
    """
    raced = [] if found is None else [*found.trials, *([found.closing] if found.closing else [])]
    wins = [trial for trial in raced if trial.accepted and trial.ratio is not None]
    kept = chosen[name]
    last = next((trial for trial in reversed(wins) if trial.schedule == kept.text()), None)
    speed = found.speed if found is not None and last is not None else 1.0
    # The interval of the last step, carried to the whole way.
    scale = speed / last.ratio if last is not None and last.ratio else 1.0
    return OperatorResult(
        operator=name,
        share=share,
        trials=0 if found is None else len(found.trials),
        accepted=0 if found is None else found.accepted,
        default_schedule=default.text(),
        schedule=kept.text(),
        default_ns=default_ns,
        time_ns=default_ns if last is None else last.time_ns,
        ratio=speed,
        ratio_lo=scale * (last.ratio_lo or 1.0) if last is not None else 1.0,
        ratio_hi=scale * (last.ratio_hi or 1.0) if last is not None else 1.0,
        roofline_fraction=None if last is None else last.roofline_fraction,
    )


def brief(trial: Trial) -> dict[str, object]:
    """What a package keeps of an accepted trial."""
    return {
        "schedule": trial.schedule,
        "source_sha256": trial.source_sha256,
        "key": trial.key,
        "ratio": trial.ratio,
        "ratio_lo": trial.ratio_lo,
        "ratio_hi": trial.ratio_hi,
        "time_ns": trial.time_ns,
        "roofline_fraction": trial.roofline_fraction,
    }


def write_json(path: Path, data: Mapping[str, object]) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="ascii")
