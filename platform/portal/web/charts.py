"""Figures as plain Plotly JSON, drawn in the browser by static/portal/charts.js.

In: numbers from stored records. Out: JSON-able dicts in Plotly's figure format. Colours are named
by role ("role:accent") and filled in by the page, so that a chart follows light and dark; series
also differ by symbol or dash, because colour is never the only sign. A table stands beside each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Chart = dict[str, Any]

# One look per series, in a fixed order: a series keeps its look when others come or go.
SERIES = (
    ("role:accent", "solid", "circle"),
    ("role:ember", "dash", "square"),
    ("role:good", "dot", "diamond"),
    ("role:warn", "dashdot", "triangle-up"),
    ("role:bad", "longdash", "x"),
    ("role:soft", "longdashdot", "star"),
    ("role:ink", "solid", "cross"),
)


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def length_histogram(lengths: Mapping[str, int] | Mapping[int, int]) -> Chart:
    """Samples per token length: bars over the length in tokens."""
    pairs = sorted((int(length), int(count)) for length, count in lengths.items())
    return {
        "data": [
            {
                "type": "bar",
                "x": [length for length, _ in pairs],
                "y": [count for _, count in pairs],
                "marker": {"color": "role:accent"},
                "hovertemplate": "%{x} tokens: %{y} samples<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": _axis("Length, tokens"),
            "yaxis": _axis("Samples", rangemode="tozero"),
            "bargap": 0.15,
        },
    }


def search_progress(series: Mapping[str, Sequence[tuple[float, float]]]) -> Chart:
    """Best speed so far over the search, one step line per operator.

    `series` maps an operator to (elapsed seconds, ratio) points, where the ratio is the time of the
    operator's first kernel over the best time so far: 1 at the start, never falling.
    """
    traces = []
    for index, (operator, points) in enumerate(sorted(series.items())):
        color, dash, symbol = SERIES[index % len(SERIES)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": operator,
                "x": [elapsed for elapsed, _ in points],
                "y": [ratio for _, ratio in points],
                "line": {"shape": "hv", "color": color, "dash": dash, "width": 2},
                "marker": {"symbol": symbol, "size": 7, "color": color},
                "hovertemplate": "%{x:.1f} s: %{y:.3f}x<extra>" + operator + "</extra>",
            }
        )
    return {
        "data": traces,
        "layout": {
            "xaxis": _axis("Time in the search, seconds", rangemode="tozero"),
            "yaxis": _axis("Speed against the first kernel"),
            "legend": {"orientation": "h", "y": -0.2},
            "margin": {"b": 96},
        },
    }


def paired_changes(
    changes: Sequence[float],
    *,
    point: float | None,
    low: float | None,
    high: float | None,
    band: str,
) -> Chart:
    """One dot per pair with the estimate as a line and its interval as a band.

    All arguments are changes in per cent; `band` names the interval in the legend.
    """
    last = len(changes)
    shapes: list[dict[str, Any]] = []
    edges = [0.5, last + 0.5]
    traces: list[dict[str, Any]] = []
    if low is not None and high is not None:
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": band,
                "x": [*edges, *reversed(edges)], "y": [low, low, high, high],
                "fill": "toself", "fillcolor": "role:info-bg",
                "line": {"color": "role:line", "width": 1}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    if point is not None:
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "Estimate",
                "x": edges, "y": [point, point],
                "line": {"color": "role:ember", "width": 2, "dash": "dash"},
                "hovertemplate": "estimate %{y:.2f} %<extra></extra>",
            }
        )  # fmt: skip
    traces.append(
        {
            "type": "scatter", "mode": "markers", "name": "Pair",
            "x": list(range(1, last + 1)), "y": list(changes),
            "marker": {"color": "role:accent", "size": 10, "symbol": "circle"},
            "hovertemplate": "pair %{x}: %{y:.2f} %<extra></extra>",
        }
    )  # fmt: skip
    shapes.append(
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0,
            "line": {"color": "role:line", "width": 1.5},
        }
    )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": _axis("Pair", dtick=1 if last <= 20 else None, range=[0.5, last + 0.5]),
            "yaxis": _axis("Change in samples/s", ticksuffix=" %"),
            "shapes": shapes,
            "legend": {"orientation": "h", "y": -0.28},
            "margin": {"b": 96, "l": 72},
        },
    }


def savings_waterfall(
    *, counterfactual: float, actual: float, savings: float, fee: float, currency: str
) -> Chart:
    """From the cost without our kernels, down by the savings, up by the fee."""
    return {
        "data": [
            {
                "type": "waterfall",
                "measure": ["absolute", "relative", "total", "relative", "total"],
                "x": [
                    "Counterfactual", "Billable savings", "Actual, at the bound", "Our fee",
                    "Actual and fee",
                ],
                "y": [counterfactual, -savings, actual, fee, actual + fee],
                "increasing": {"marker": {"color": "role:ember"}},
                "decreasing": {"marker": {"color": "role:good"}},
                "totals": {"marker": {"color": "role:accent"}},
                "connector": {"line": {"color": "role:line", "width": 1}},
                "hovertemplate": "%{x}: %{y:.6f} " + currency + "<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"type": "category"},
            "yaxis": _axis(f"Cost in the period, {currency}", rangemode="tozero"),
            "showlegend": False,
            "margin": {"l": 80},
        },
    }  # fmt: skip


def usage_volumes(
    labels: Sequence[str], series: Mapping[str, Mapping[str, int]], *, missing: Sequence[str]
) -> Chart:
    """Stacked bars of accepted samples per day or hour; spans without usage bear a cross.

    `labels` are all spans in order; `series` maps a name to samples by label, a span that is not
    in it has no bar.
    """
    shapes = ("", "/", "x", ".", "-", "+", "|")
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": list(values),
            "y": list(values.values()),
            "marker": {
                "color": SERIES[index % len(SERIES)][0],
                "pattern": {"shape": shapes[index % len(shapes)]},
            },
            "hovertemplate": "%{x}: %{y:,} samples<extra>" + name + "</extra>",
        }
        for index, (name, values) in enumerate(series.items())
    ]
    if missing:
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": "No usage came",
                "x": list(missing), "y": [0] * len(missing),
                "marker": {"symbol": "x", "size": 9, "color": "role:bad"},
                "hovertemplate": "%{x}: no usage came<extra></extra>", "cliponaxis": False,
            }
        )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "barmode": "stack",
            "xaxis": {
                "type": "category", "categoryorder": "array", "categoryarray": list(labels),
                "range": [-0.5, len(labels) - 0.5], "nticks": 12,
            },
            "yaxis": _axis("Accepted samples", rangemode="tozero"),
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            "showlegend": True,
            "margin": {"b": 96, "l": 72, "t": 72},
        },
    }  # fmt: skip


def fee_waterfall(rows: Sequence[tuple[str, str, float]], currency: str) -> Chart:
    """From the counterfactual to the payable: (name, "total" or "change", amount) per bar.

    A total is the running amount at its bar, a change what is added (or, below zero, taken off).
    """
    return {
        "data": [
            {
                "type": "waterfall",
                "measure": ["absolute" if kind == "total" else "relative" for _, kind, _ in rows],
                "x": [name for name, _, _ in rows],
                "y": [amount for _, _, amount in rows],
                "increasing": {"marker": {"color": "role:ember"}},
                "decreasing": {"marker": {"color": "role:good"}},
                "totals": {"marker": {"color": "role:accent"}},
                "connector": {"line": {"color": "role:line", "width": 1}},
                "hovertemplate": "%{x}: %{y:.6f} " + currency + "<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"type": "category", "tickangle": -40},
            "yaxis": _axis(currency),
            "showlegend": False,
            "margin": {"l": 80, "b": 160},
        },
    }
