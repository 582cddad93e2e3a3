"""The words that turn a square of lanes, in C: sums of rows side by side, and rows into columns.

In: a word, a dtype, the lanes of one vector. Out: C text. Never here: loops; both are straight
lines of two-vector shuffles, about two for every row of the square where a sum over the lanes of
each row alone would take two for every halving of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Turn = tuple[str, str, int]
"""Word, dtype, lanes."""


def turns(used: Iterable[Turn]) -> str:
    """C of the given words; needs the vocabulary of the same lanes before it."""
    return "".join(
        _row_sums(dtype, lanes) if word == "row_sums" else _transpose(dtype, lanes)
        for word, dtype, lanes in sorted(set(used))
    )


def _row_sums(t: str, v: int) -> str:
    """Neighbours are added in pairs; what is left of rows 2 i and 2 i + 1 shares one vector."""
    head = f"""
/* Lane i of the result is the sum over the lanes of x[i]; the order of adding is fixed. */
WORD {t}x{v} row_sums_{t}x{v}({t}x{v} *x) {{
"""
    return head + "".join(_tree(t, v)) + "  return x[0];\n}\n"


def _tree(t: str, v: int) -> Iterator[str]:
    step = 1
    while step < v:
        for i in range(0, v, 2 * step):
            pair = f"(x[{i}], x[{i + step}])"
            yield f"  x[{i}] = even2_{t}x{v}{pair} + odd2_{t}x{v}{pair};\n"
        step *= 2


def _transpose(t: str, v: int) -> str:
    """A perfect shuffle of all elements turns the bits of their index round by one; after
    log2(v) of them rows and columns have changed places.
    """
    lines = [
        "\n/* Lane j of y[i] is lane i of x[j]. */\n"
        f"WORD void transpose_{t}x{v}(const {t}x{v} *x, {t}x{v} *y) {{\n"
    ]
    before, level, half = "x", 0, v // 2
    while 1 << level < v:
        last = 1 << (level + 1) == v
        after = "y" if last else f"s{level}"
        if not last:
            lines.append(f"  {t}x{v} {after}[{v}];\n")
        for i in range(half):
            pair = f"({before}[{i}], {before}[{i + half}])"
            lines.append(f"  {after}[{2 * i}] = zip_low_{t}x{v}{pair};\n")
            lines.append(f"  {after}[{2 * i + 1}] = zip_high_{t}x{v}{pair};\n")
        before, level = after, level + 1
    return "".join((*lines, "}\n"))
