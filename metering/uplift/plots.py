"""Charts and a table for auditors, drawn from the logs of an evidence folder alone.

In: an evidence folder that holds. Out: ``runs.csv``, one row for each run, and ``plots.html``, one
page that needs no network: every pair with the estimate, every run over time, the log-ratios
against a normal distribution, and latencies. No figure is made here that ``evidence`` did not make;
pandas and plotly are an extra, since a verdict needs neither.
"""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from metering.evidence import Recomputed
from metering.uplift.cache import CACHE
from metering.uplift.pairs import PairedRuns, load_paired

RUNS_CSV, PAGE = "runs.csv", "plots.html"
NEEDED = "plots need pandas and plotly; install them with: pip install 'ignition[plots]'"
_BLUE, _ORANGE, _GREY = "#0a5fb4", "#b4510a", "#6b7280"
_ARMS = {"base": ("baseline", _BLUE, "circle"), "other": ("candidate", _ORANGE, "square")}
_PARTS = ("aa", "uplift", CACHE)
_CACHE_ONLY = ("samples", "samples_sha256")


class PlotsMissing(RuntimeError):
    """The extra is not installed; the message says how to install it."""


def write_plots(evidence: Path, found: Recomputed, out: Path) -> tuple[Path, ...]:
    """Write table and page of ``evidence``, whose figures are ``found``, into the folder ``out``.

    Raises PlotsMissing when pandas or plotly is not installed, EvidenceError as ``load_paired``.
    """
    try:
        pandas = importlib.import_module("pandas")  # Neither brings types that mypy could read.
        graph_objects, io = map(importlib.import_module, ("plotly.graph_objects", "plotly.io"))
    except ImportError as error:
        raise PlotsMissing(f"{NEEDED} ({error})") from error
    measured = {
        part: load_paired(evidence / part, _CACHE_ONLY if part == CACHE else ())
        for part in _PARTS
        if (evidence / part).is_dir()
    }
    table = pandas.DataFrame(
        [row for part, paired in measured.items() for row in _rows(part, paired)]
    )
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / RUNS_CSV, index=False)
    charts = [
        ("pairs", _pairs(measured, found)),
        ("drift", _drift(table)),
        ("qq", _quantiles(measured)),
        ("latency", _latency(table)),
    ]
    parts = [
        io.to_html(
            graph_objects.Figure(chart),
            full_html=False,
            include_plotlyjs=number == 0,  # Once, inside the page: no network is needed.
            div_id=name,
            config={"displaylogo": False, "responsive": True},
        )
        for number, (name, chart) in enumerate(charts)
    ]
    (out / PAGE).write_text(_page(found, parts), "utf-8")
    return (out / RUNS_CSV, out / PAGE)


def _rows(part: str, paired: PairedRuns) -> Iterator[dict[str, Any]]:
    for pair in paired.pairs:
        for number, arm in enumerate(("base", "other")):
            result = getattr(pair, arm)
            seen = None if pair.conditions is None else pair.conditions[number]
            latency = result.latency
            yield {
                "part": part,
                "pair": pair.pair,
                "warm_up": pair.warm_up,
                "arm": arm,
                "ran_first": pair.first == arm,
                "run_id": result.run_id,
                "state": result.state,
                "started_at": result.started_at,
                "wall_s": result.wall_s,
                "cpu_s": result.cpu_s,
                "samples_per_second": result.samples_per_second,
                "p50_ms": None if latency is None else latency.p50_ns / 1e6,
                "p90_ms": None if latency is None else latency.p90_ns / 1e6,
                "p99_ms": None if latency is None else latency.p99_ns / 1e6,
                "max_ms": None if latency is None else latency.max_ns / 1e6,
                "pace_us": None if seen is None else seen.pace_ns / 1e3,
                "foreign": None if seen is None else seen.foreign,
            }


def _percent(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _pairs(measured: dict[str, PairedRuns], found: Recomputed) -> dict[str, Any]:
    """Each pair's ratio; the symbol says which arm ran first, the band is the exact interval."""
    data: list[dict[str, Any]] = []
    for part, colour in (("aa", _GREY), ("uplift", _ORANGE)):
        for first, symbol in (("base", "circle"), ("other", "square-open")):
            chosen = [
                pair
                for pair in measured[part].pairs
                if not pair.warm_up and pair.first == first and pair.base.valid and pair.other.valid
            ]
            name = f"uplift, {_ARMS[first][0]} first"
            if part == "aa":
                name = f"A/A, {'first' if first == 'base' else 'second'} arm first"
            data.append(
                _points(
                    [pair.pair for pair in chosen],
                    [_percent(pair.log_ratio) for pair in chosen],
                    name,
                    colour,
                    symbol,
                )
            )
    shapes = [_line(0, _GREY, "dash")]
    if found.uplift is not None:
        shapes += [
            _band(100 * found.uplift.lo, 100 * found.uplift.hi),
            _line(100 * found.uplift.point, _ORANGE, "solid"),
            _line(100 * found.uplift.lower_95, _ORANGE, "dot"),
        ]
    title = "Pairs: candidate over baseline"
    if found.uplift is not None:
        title += (
            f"; estimate {found.uplift.point:+.1%} (line), 95 % interval (band), "
            f"lower bound {found.uplift.lower_95:+.1%} (dots)"
        )
    return _chart(data, title, "Pair", "Change, %", shapes)


def _drift(table: Any) -> dict[str, Any]:
    """Every run's rate over the minutes of the measurement: what the machine did meanwhile."""
    data = []
    valid = table[table["state"] == "VALID"]
    started = [datetime.fromisoformat(text) for text in valid["started_at"]]
    begin = min(started)
    minutes = [(moment - begin).total_seconds() / 60 for moment in started]
    valid = valid.assign(minutes=minutes)
    for part in valid["part"].unique():
        for arm, (name, colour, symbol) in _ARMS.items():
            chosen = valid[(valid["part"] == part) & (valid["arm"] == arm)]
            label = f"{part}, {name}"
            if part == CACHE:
                label = f"cache test, {'fresh' if arm == 'base' else 'repeated'} inputs"
            elif part == "aa":
                label = f"A/A, {'first' if arm == 'base' else 'second'} arm"
            rates = [float(rate) for rate in chosen["samples_per_second"]]
            shape = symbol if part == "uplift" else f"{symbol}-open"
            if part == CACHE:
                shape = f"triangle-{'up' if arm == 'base' else 'down'}-open"
            data.append(_points(list(chosen["minutes"]), rates, label, colour, shape))
    return _chart(
        data, "Drift: every run over time", "Minutes since the first run", "Samples per second", []
    )


def _quantiles(measured: dict[str, PairedRuns]) -> dict[str, Any]:
    """Log-ratios against a normal distribution: bends are why the interval assumes none."""
    data = []
    for part, colour, symbol in (("aa", _GREY, "circle"), ("uplift", _ORANGE, "square")):
        paired = measured[part]
        if not paired.complete:
            continue
        values = np.sort(np.array(paired.log_ratios()))
        wanted = stats.norm.ppf((np.arange(1, len(values) + 1) - 0.5) / len(values))
        name = "A/A" if part == "aa" else "uplift"
        data.append(_points(list(wanted), [float(value) for value in values], name, colour, symbol))
        center, spread = float(values.mean()), float(values.std(ddof=1))
        ends = [float(wanted[0]), float(wanted[-1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": ends,
                "y": [center + spread * end for end in ends],
                "line": {"color": colour, "dash": "dot", "width": 1},
                "name": f"normal with the mean and spread of {name}",
            }
        )
    return _chart(
        data, "QQ: log-ratios of the pairs", "Standard normal quantile", "ln(other / base)", []
    )


def _latency(table: Any) -> dict[str, Any]:
    """Latency order statistics of the uplift's runs, one box for each arm and statistic."""
    data = []
    valid = table[(table["part"] == "uplift") & (table["state"] == "VALID") & ~table["warm_up"]]
    names = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "max_ms": "max"}
    for arm, (name, colour, symbol) in _ARMS.items():
        chosen = valid[valid["arm"] == arm]
        data.append(
            {
                "type": "box",
                "x": [names[column] for column in names for _ in range(len(chosen))],
                "y": [float(value) for column in names for value in chosen[column]],
                "name": name,
                "marker": {"color": colour, "symbol": symbol, "size": 5},
                "boxpoints": "all",
                "jitter": 0.4,
                "pointpos": 0,
            }
        )
    chart = _chart(data, "Latency: order statistics of each run", "Statistic", "Milliseconds", [])
    chart["layout"]["boxmode"] = "group"
    chart["layout"]["yaxis"]["rangemode"] = "tozero"
    return chart


def _points(
    x: Sequence[float], y: Sequence[float], name: str, colour: str, symbol: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [float(value) for value in x],
        "y": list(y),
        "name": name,
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1.5}},
    }


def _line(height: float, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": colour, "dash": dash, "width": 1.5},
        "layer": "below",
    }


def _band(low: float, high: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": low,
        "y1": high,
        "fillcolor": _ORANGE,
        "opacity": 0.12,
        "line": {"width": 0},
        "layer": "below",
    }


def _chart(
    data: list[dict[str, Any]], title: str, x: str, y: str, shapes: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "data": data,
        "layout": {
            "title": {"text": title, "x": 0, "xanchor": "left", "font": {"size": 16}},
            "template": "plotly_white",
            "height": 440,
            "margin": {"l": 70, "r": 20, "t": 60, "b": 90},
            "xaxis": {"title": {"text": x}},
            "yaxis": {"title": {"text": y}},
            "legend": {"orientation": "h", "y": -0.22},
            "shapes": shapes,
        },
    }


def _page(found: Recomputed, charts: Sequence[str]) -> str:
    verdict = "kept" if found.decision.kept else "not kept"
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in found.decision.reasons)
    baseline = (
        f"Baseline {found.baseline.stack} {found.baseline.version}, "
        f"{found.baseline_samples_per_second} samples/s. Plan {found.plan_digest}."
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<title>Uplift, from the logs</title>"
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;"
        "padding:0 1rem;color:#111827}p{overflow-wrap:anywhere}</style></head><body>"
        f"<h1>Uplift, from the logs: {verdict}</h1><p>{html.escape(baseline)}</p><ul>{reasons}</ul>"
        f"<p>Drawn from LoadGen's logs alone; the figures of every run are in {RUNS_CSV}. MLPerf "
        "LoadGen based, not verified by MLCommons.</p>" + "".join(charts) + "</body></html>\n"
    )
