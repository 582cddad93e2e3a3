"""Rows for people: one line each in a pipe, a table on a terminal, and a summary.

In: rows. Out: text on standard output. Never here: a number that is not in the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from kernelgen.bench.summary import LEAST_RATIO, LONG_US, NEAR_ROOF, Summary, counted, geomean

Row = Mapping[str, object]

HEADS = ("operator", "ours us", "best peer", "peer us", "ratio", "95 % interval", "roof", "")


def cells(row: Row) -> tuple[str, ...]:
    """The columns of one row, in the order of `HEADS`."""
    peers, best, interval = row["peers"], row["best_peer"], row["ratio_ci"]
    peer = ""
    if isinstance(peers, Mapping) and isinstance(best, str):
        peer = f"{peers[best]:.2f}"
    ends = ""
    if isinstance(interval, Sequence) and interval:
        ends = f"[{interval[0]:.2f}, {interval[1]:.2f}]"
    return (
        str(row["name"]),
        _number(row["ours_us"], ".2f"),
        str(best or "none"),
        peer,
        _number(row["ratio"], ".2f"),
        ends,
        _number(row["roofline_fraction"], ".2f"),
        "" if row["correct"] else f"FAILED {row['reason'] or ''}".strip(),
    )


def _number(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else ""


def line(row: Row) -> str:
    """One row as one line of fixed columns."""
    name, ours, best, peer, ratio, ends, roof, trouble = cells(row)
    text = f"{name:<58} {ours:>9} {best:<11} {peer:>9} {ratio:>6} {ends:>14} {roof:>5}"
    return f"{text}  {trouble}".rstrip()


def show(rows: Sequence[Row], total: Summary) -> None:
    """The whole table on a terminal; in a pipe the lines were printed as they came."""
    if sys.stdout.isatty():
        from rich.console import Console, JustifyMethod
        from rich.table import Table

        table = Table(box=None)
        for place, head in enumerate(HEADS):
            justify: JustifyMethod = "right" if place in (1, 3, 4, 5, 6) else "left"
            table.add_column(head, justify=justify, overflow="fold")
        for row in rows:
            slow = isinstance(row["ratio"], float) and row["ratio"] < LEAST_RATIO
            style = "red" if slow or not row["correct"] else ""
            table.add_row(*cells(row), style=style)
        Console().print(table)
    print(families_line(rows))
    print(summary_line(total))


def families_line(rows: Sequence[Row]) -> str:
    """Geometric mean and number of rows of every family, slowest first."""
    found: dict[str, list[float]] = {}
    for row in rows:
        ratio = counted(row)
        if ratio is not None:
            found.setdefault(str(row["family"]), []).append(ratio)
    means = {family: geomean(ratios) for family, ratios in found.items()}
    order = sorted(means, key=lambda family: means[family])
    return ", ".join(f"{family} {means[family]:.2f} ({len(found[family])})" for family in order)


def summary_line(total: Summary) -> str:
    """The suite in one line."""
    if total.geomean is None or total.worst_ratio is None:
        return f"{total.correct} of {total.rows} rows correct, none compared"
    long = ""
    if total.long_geomean is not None:
        long = f", {total.long_geomean:.3f} where a peer takes {LONG_US:g} us or more"
    return (
        f"{total.correct} of {total.rows} rows correct; geometric mean {total.geomean:.3f} over "
        f"{total.compared} (failures count){long}; worst {total.worst_ratio:.3f} {total.worst}; "
        f"{total.below} below {LEAST_RATIO}; {total.near_roof} at {NEAR_ROOF} of the roof or more"
    )
