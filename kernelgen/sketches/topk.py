"""Top-k by keeping the maximum of every block of a row: each of the k steps finds the block that
holds the next one, takes it, and looks that block over again. The work does not depend on the
numbers, however they are ordered.

In: a `TopK` and a schedule. Out: its program. Never here: partial sorts; heaps.

Floats are compared as integers that order the same way (`key`), so that NaN and infinities need no
cases of their own and one integer below all keys can mean "taken".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernelgen.machine import Machine
from kernelgen.ops.topk import TopK
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.schedule import Value as Choice
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import walk
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import (
    Build,
    Memory,
    Value,
    cast,
    fill,
    lane,
    max_,
    maximum,
    minimum,
    select,
    span,
    word,
)
from kernelgen.tile.check import MOST_LANES
from kernelgen.tile.ir import Kernel

TAKEN = -0x7FFFFFFF
"""Below every key: -inf has -0x7F800001."""

NAN_KEY = 0x7FFFFFFF
"""Above every number's key, infinity's is 0x7F800000."""

NOWHERE = 0x7FFFFFFF


def _keys(b: Build, x: Value, lanes: int, left: int | None) -> Value:
    """i32 that order as the floats do: the bits, those behind a minus sign turned round. Adding
    zero makes one zero of the two.
    """
    bits = b.let(b.fresh("bits"), word("bits", x + fill(0.0, "f32", lanes)))
    key = word("bit_xor", bits, (bits >> 31) & NAN_KEY)
    key = select(x.equals(x), key, NAN_KEY)
    if left is not None:
        key = select(lane(lanes) < left, key, TAKEN)
    return b.let(b.fresh("key"), key)


def _lanes(count: int, vector: int) -> int:
    """The least number of lanes, two up, that a tile of `count` places takes."""
    return max(2, 1 << (count - 1).bit_length()) if count < vector else -(-count // vector) * vector


def _first(b: Build, name: str, keys: Value, top: Value, lanes: int) -> Value:
    """The first lane that holds `top`."""
    return b.let(name, word("min", select(keys.equals(top), lane(lanes), NOWHERE)))


def _program(operator: TopK, schedule: Schedule) -> Kernel:
    vector, tile = schedule.number("vector"), schedule.number("tile")
    b, memory = begin(operator)
    if operator.n <= vector * tile:
        _at_once(b, memory, operator, _lanes(operator.n, vector))
    else:
        _in_blocks(b, memory, operator, vector, vector * tile)
    return b.kernel()


def _at_once(b: Build, memory: Mapping[str, Memory], operator: TopK, lanes: int) -> None:
    """The whole row as one tile of keys."""
    left = operator.n if operator.n < lanes else None
    with b.run(), b.parallel("i", 0, "m") as i:
        x = b.let("x_row", memory["x"][i, span(0, lanes, left)])
        keys = b.let("keys", _keys(b, x, lanes, left))
        with b.loop("t", 0, operator.k) as t:
            top = b.let("top", max_(keys))
            place = _first(b, "place", keys, top, lanes)
            b.let("keys", select(lane(lanes).equals(place), TAKEN, keys))
            _answer(b, memory, i, t, cast("i64", place))


def _answer(b: Build, memory: Mapping[str, Memory], i: Value, t: Value, place: Value) -> None:
    at = b.let("at", place)
    memory["indices"][i, t] = at
    memory["values"][i, t] = memory["x"][i, at]


def _in_blocks(
    b: Build, memory: Mapping[str, Memory], operator: TopK, vector: int, tile: int
) -> None:
    n, length = operator.n, tile * _tiles(operator.n, tile)
    many, rest = divmod(n, length)
    blocks = many + (rest > 0)
    wide = _lanes(blocks, vector)
    highest = b.buffer("highest", "i32", (wide,), "private")
    with b.run(), b.parallel("i", 0, "m") as i:
        with b.loop("c", 0, many) as c:
            highest[c] = _highest(b, memory["x"], i, c * length, length, tile)
        if rest:
            highest[many] = _highest(b, memory["x"], i, many * length, rest, tile)
        with b.loop("c", blocks, wide) as c:
            highest[c] = cast("i32", TAKEN)
        peaks = b.let("peaks", highest[span(0, wide)])
        b.let("last", cast("i32", TAKEN))
        b.let("at", -1)
        with b.loop("t", 0, operator.k) as t:
            top = b.let("top", max_(peaks))
            number = _first(b, "number", peaks, top, wide)
            which = b.let("which", cast("i64", number))
            # Of a key that was the last one taken too, only later places are left.
            after = b.let("after", -1)
            with b.when(top.equals("last")):
                b.let("after", "at")
            place = b.let("place", cast("i32", 0))
            below = b.let("below", cast("i32", TAKEN))
            if rest:
                with b.when(which < many):
                    _take(b, memory["x"], i, which * length, length, tile, top, after)
                with b.otherwise():
                    _take(b, memory["x"], i, many * length, rest, tile, top, after)
            else:
                _take(b, memory["x"], i, which * length, length, tile, top, after)
            b.let("peaks", select(lane(wide).equals(number), below, peaks))
            b.let("last", top)
            _answer(b, memory, i, t, which * length + cast("i64", place))


def _highest(b: Build, x: Memory, i: Value, start: Value | int, length: int, tile: int) -> Value:
    """The largest key of a block."""
    b.let("peak", fill(TAKEN, "i32", tile))
    for piece in walk(b, "j", length, tile, start):
        loaded = b.let("x_part", x[i, piece.span])
        b.let("peak", maximum(_keys(b, loaded, tile, piece.left), "peak"))
    return b.let("peak_of_block", max_("peak"))


def _take(
    b: Build,
    x: Memory,
    i: Value,
    start: Value | int,
    length: int,
    tile: int,
    top: Value,
    after: Value,
) -> None:
    """Assigns `place`, the first place in the block behind `after` that holds `top`, and `below`,
    the largest key of what follows it in rank. A block of one tile is loaded once.
    """
    begin_at = b.let("begin_at", start)
    edge = b.let("edge", cast("i32", maximum(after - begin_at, -1)))
    single = length <= tile
    found: list[tuple[Value, Value]] = []

    def keyed() -> Iterator[tuple[Value, Value]]:
        if found:
            yield found[0]
            return
        for piece in walk(b, "j", length, tile, begin_at):
            loaded = b.let("x_part", x[i, piece.span])
            key = _keys(b, loaded, tile, piece.left)
            away = piece.start - begin_at if length > tile else None
            number = lane(tile) if away is None else lane(tile) + cast("i32", away)
            if single:
                found.append((key, number))
            yield key, number

    b.let("first", fill(NOWHERE, "i32", tile))
    for key, number in keyed():
        here = key.equals(top) & (number > edge)
        b.let("first", minimum(select(here, number, NOWHERE), "first"))
    place = b.let("place", word("min", "first"))
    b.let("following", fill(TAKEN, "i32", tile))
    for key, number in keyed():
        here = (key < top) | (key.equals(top) & (number > place))
        b.let("following", maximum(select(here, key, TAKEN), "following"))
    b.let("below", max_("following"))


def _tiles(n: int, tile: int) -> int:
    """Tiles of a block, so that the blocks' maxima fit one tile."""
    return -(-n // (tile * MOST_LANES))


def _space(operator: TopK, machine: Machine) -> SearchSpace:
    """`tile`: vectors that are looked over together."""
    wide, n = widths(machine), operator.n

    def rule(choices: Mapping[str, Choice]) -> str | None:
        lanes = int(choices["vector"]) * int(choices["tile"])
        if lanes > MOST_LANES:
            return f"tile: {lanes} lanes, wanted at most {MOST_LANES}"
        return None

    # Where the two looks of a step, over the maxima and over a block, cost about the same.
    ideal = (n / 2) ** 0.5 / wide[-1]
    tiles = (1, 2, 4, 8, 12, 16)
    best = min(tiles, key=lambda tile: abs(tile - ideal))
    if n <= 8 * wide[-1]:
        best = next(tile for tile in tiles if n <= tile * wide[-1])
    axes = {"vector": wide, "tile": tiles}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "tile": best}, rule)


TOP_K = Sketch("top_k", _program, _space)
