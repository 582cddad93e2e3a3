"""Mixture of experts: rows are put in order of their experts, then each expert's rows meet its
weights in two products, so that weights are read once per expert and never for an empty one.

In: a `Moe` and a schedule. Out: its program. Never here: the gate's meaning.

Weights lie expert after expert in panels, those of w1 and w3 that meet in one register tile side by
side; panels are filled up with zeros. An expert's rows are cut into tiles of nearly equal height.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelgen.machine import Machine
from kernelgen.ops.moe import CHOSEN, Moe
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, fill, fma, select, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

LINE = 16
"""Floats of a cache line."""


@dataclass(frozen=True)
class _Parts:
    """A program in the making. `inner` and `outer` are the lanes of a tile of the first and the
    second product, `middle` and `hidden` the widths filled up to whole tiles.
    """

    operator: Moe
    v: int
    rows: int
    inner: int
    outer: int
    ahead: int
    b: Build
    memory: dict[str, Memory]

    @property
    def middle(self) -> int:
        return -(-self.operator.middle // self.inner) * self.inner

    @property
    def hidden(self) -> int:
        return -(-self.operator.hidden // self.outer) * self.outer


def _program(operator: Moe, schedule: Schedule) -> Kernel:
    v, across, ahead = (schedule.number(axis) for axis in ("vector", "across", "ahead"))
    b, memory = begin(operator)
    inner = across // 2 * v if operator.gated else across * v
    p = _Parts(operator, v, schedule.number("rows"), inner, across * v, ahead, b, memory)
    _buffers(p)
    with b.prepare():
        _pack(p)
    with b.run():
        _choose(p)
        _sort(p)
        with b.parallel("e", 0, operator.experts) as e:
            low = b.let("low", memory["start"][e])
            count = b.let("count", memory["start"][e + 1] - low)
            with b.loop("panel", 0, p.middle // p.inner) as panel:
                _tiles(p, low, count, lambda top, high: _first(p, e, panel, top, high))
            with b.loop("panel", 0, p.hidden // p.outer) as panel:
                _tiles(p, low, count, lambda top, high: _second(p, e, panel, top, high))
        _join(p)
    return b.kernel()


def _buffers(p: _Parts) -> None:
    b, operator, memory = p.b, p.operator, p.memory
    experts, both = operator.experts, b.dim("m") * CHOSEN
    sides = 2 if operator.gated else 1
    first = (experts, p.middle // p.inner, operator.hidden, sides * p.inner)
    memory["first"] = b.buffer("first", "f32", first, "packed")
    second = (experts, p.hidden // p.outer, p.middle, p.outer)
    memory["second"] = b.buffer("second", "f32", second, "packed")
    memory["expert"] = b.buffer("expert", "i64", (both,), "local")
    memory["place"] = b.buffer("place", "i64", (both,), "local")
    memory["gate"] = b.buffer("gate", "f32", (both,), "local")
    memory["start"] = b.buffer("start", "i64", (experts + 1,), "local")
    memory["next"] = b.buffer("next", "i64", (experts,), "local")
    memory["sorted"] = b.buffer("sorted", "f32", (both, operator.hidden), "local")
    memory["between"] = b.buffer("between", "f32", (both, p.middle), "local")
    memory["made"] = b.buffer("made", "f32", (both, p.hidden), "local")


def _pack(p: _Parts) -> None:
    b, operator, memory = p.b, p.operator, p.memory
    n, k = operator.middle, operator.hidden
    with b.loop("e", 0, operator.experts) as e:
        with b.loop("panel", 0, p.middle // p.inner) as panel, b.loop("c", 0, k) as c:
            at = panel * p.inner
            for side, name in enumerate(("w1", "w3") if operator.gated else ("w1",)):
                row = memory[name][e, c, span(at, p.inner, n - at)]
                memory["first"][e, panel, c, span(side * p.inner, p.inner)] = row
        with b.loop("panel", 0, p.hidden // p.outer) as panel:
            at = panel * p.outer
            with b.loop("c", 0, n) as c:
                row = memory["w2"][e, c, span(at, p.outer, k - at)]
                memory["second"][e, panel, c, span(0, p.outer)] = row
            with b.loop("c", n, p.middle) as c:
                memory["second"][e, panel, c, span(0, p.outer)] = fill(0.0, "f32", p.outer)


# ---- gating and sorting -------------------------------------------------------------------------


def _choose(p: _Parts) -> None:
    """The two largest logits of every row, the lower expert among equals, and their gates.
    Whatever the logits are, NaN too, experts are two of those there are.
    """
    b, logits, operator = p.b, p.memory["logits"], p.operator
    with b.loop("t", 0, "m") as t:
        turned = b.let("turned", logits[t, 0] < logits[t, 1])
        best = b.let("best", select(turned, 1, b.let("none", t * 0)))
        next_best = b.let("next_best", select(turned, 0, b.let("one", t * 0 + 1)))
        with b.loop("e", 2, operator.experts) as e:
            score = b.let("score", logits[t, e])
            ahead = b.let("ahead", logits[t, best] < score)
            beside = b.let("beside", logits[t, next_best] < score)
            b.let("next_best", select(ahead, best, select(beside, e, next_best)))
            b.let("best", select(ahead, e, best))
        top = b.let("top", logits[t, best])
        second = b.let("second_power", word("exp_below", logits[t, next_best] - top))
        if operator.normalise:
            total = b.let("total", second + 1.0)
        else:
            total = b.let("total", fill(0.0, "f32"))
            with b.loop("e", 0, operator.experts) as e:
                b.let("total", total + word("exp_below", logits[t, e] - top))
        p.memory["expert"][t * CHOSEN] = best
        p.memory["expert"][t * CHOSEN + 1] = next_best
        p.memory["gate"][t * CHOSEN] = 1.0 / total
        p.memory["gate"][t * CHOSEN + 1] = second / total


def _sort(p: _Parts) -> None:
    """Counts each expert's rows, then copies rows to where their expert's begin."""
    b, v, memory, operator = p.b, p.v, p.memory, p.operator
    start, expert = memory["start"], memory["expert"]
    with b.loop("e", 0, operator.experts + 1) as e:
        start[e] = b.let("none", e * 0)
    with b.loop("a", 0, b.dim("m") * CHOSEN) as a:
        own = b.let("own", expert[a])
        start[own + 1] = start[own + 1] + 1
    with b.loop("e", 0, operator.experts) as e:
        start[e + 1] = start[e + 1] + start[e]
        memory["next"][e] = start[e]
    whole, k = operator.hidden // v * v, operator.hidden
    with b.loop("a", 0, b.dim("m") * CHOSEN) as a:
        own = b.let("own", expert[a])
        place = b.let("at", memory["next"][own])
        memory["next"][own] = place + 1
        memory["place"][a] = place
        with b.loop("c", 0, whole, v) as c:
            memory["sorted"][place, span(c, v)] = memory["x"][a // CHOSEN, span(c, v)]
        if whole < k:
            rest = memory["x"][a // CHOSEN, span(whole, v, k - whole)]
            memory["sorted"][place, span(whole, v, k - whole)] = rest


# ---- products -----------------------------------------------------------------------------------


def _tiles(p: _Parts, low: Expr, count: Expr, tile: Callable[[Expr, int], None]) -> None:
    """`tile(top, high)` over rows `low` to `low + count`, heights as equal as can be."""
    b = p.b
    tiles = b.let("tiles", (count + (p.rows - 1)) // p.rows)
    with b.loop("tile_no", 0, tiles) as t:
        top = b.let("top", t * count // tiles)
        high = b.let("high", (t + 1) * count // tiles - top)
        for rows in range(1, p.rows + 1):
            with b.when(high.equals(rows)):
                tile(low + top, rows)


def _first(p: _Parts, e: Expr, panel: Expr, top: Expr, high: int) -> None:
    """between = silu(x w1) * (x w3), or gelu(x w1), for one tile."""
    b, source, weights = p.b, p.memory["sorted"], p.memory["first"]
    sides = ("one", "three") if p.operator.gated else ("one",)
    sums = {side: b.let(side, fill(0.0, "f32", high, p.inner)) for side in sides}
    with b.loop("c", 0, p.operator.hidden) as c:
        column = source[span(top, high), span(c, 1)]
        _fetch(p, weights, (e, panel, c), len(sides) * p.inner)
        for at, side in enumerate(sides):
            row = weights[e, panel, c, span(at * p.inner, p.inner)]
            b.let(side, fma(column, row, sums[side]))
    if p.operator.gated:
        made = sums["one"] * word("sigmoid", sums["one"]) * sums["three"]
    else:
        made = word("gelu", sums["one"])
    p.memory["between"][span(top, high), span(panel * p.inner, p.inner)] = made


def _second(p: _Parts, e: Expr, panel: Expr, top: Expr, high: int) -> None:
    """made = between w2 for one tile."""
    b, source, weights = p.b, p.memory["between"], p.memory["second"]
    total = b.let("two", fill(0.0, "f32", high, p.outer))
    with b.loop("c", 0, p.middle) as c:
        column = source[span(top, high), span(c, 1)]
        _fetch(p, weights, (e, panel, c), p.outer)
        b.let("two", fma(column, weights[e, panel, c, span(0, p.outer)], total))
    p.memory["made"][span(top, high), span(panel * p.outer, p.outer)] = total


def _fetch(p: _Parts, weights: Memory, at: tuple[Expr, Expr, Expr], width: int) -> None:
    """A row of weights some bytes further on in the stream, which runs on into the next panel."""
    if p.ahead:
        e, panel, c = at
        for lane in range(0, width, LINE):
            p.b.prefetch(weights, (e, panel, c + max(1, p.ahead // (4 * width)), lane))


def _join(p: _Parts) -> None:
    """out = gate times expert, for both experts of every row."""
    b, v, memory, k = p.b, p.v, p.memory, p.operator.hidden
    with b.loop("t", 0, "m") as t:
        one, two = (b.let(f"place_{i}", memory["place"][t * CHOSEN + i]) for i in range(CHOSEN))
        gates = [b.let(f"gate_{i}", memory["gate"][t * CHOSEN + i]) for i in range(CHOSEN)]
        with b.loop("c", 0, k, v) as c:
            made = memory["made"][one, span(c, v)] * gates[0]
            made = fma(memory["made"][two, span(c, v)], gates[1], made)
            memory["out"][t, span(c, v, k - c)] = made


def _space(operator: Moe, machine: Machine) -> SearchSpace:
    wide = widths(machine)

    def rule(choices: Mapping[str, Value]) -> str | None:
        v, rows, across = (choices[axis] for axis in ("vector", "rows", "across"))
        room = 24 if v == 16 else 12
        if isinstance(rows, int) and isinstance(across, int) and rows * across > room:
            return f"across: {rows} rows of {across} vectors, wanted at most {room} in all"
        return None

    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "rows": (2, 3, 4, 6, 8, 12),
        "across": (2, 4),
        "ahead": (0, 1024, 2048, 4096, 8192),
    }
    # Tall tiles: a panel that is read again for each tile is narrow.
    rows = 12 if wide[-1] == 16 else 6
    start: dict[str, Value] = {"vector": wide[-1], "rows": rows, "across": 2, "ahead": 4096}
    return SearchSpace(operator.name, axes, start, rule)


MOE = Sketch("moe", _program, _space)
