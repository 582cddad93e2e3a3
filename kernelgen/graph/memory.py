"""Where every activation lives: which values need all rows at once, which only a block, and who may
share.

In: a `Graph`. Out: a `Plan` of offsets in floats per row. Never here: C text, block sizes.

Row-wise steps in a row form a chain that runs block by block, so what passes only inside a chain
needs one block of rows and stays in cache. Values are placed first-fit among those alive at the
same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelgen.graph.types import Graph, Step


@dataclass(frozen=True)
class Place:
    """`offset` and `width` are floats per row; `whole` means the area with all rows, otherwise the
    block area.
    """

    whole: bool
    offset: int
    width: int


@dataclass(frozen=True)
class Plan:
    """`chains` group the steps; `places` say where each value lies; the widths are floats per row
    of either area.
    """

    chains: tuple[tuple[Step, ...], ...]
    places: Mapping[str, Place]
    whole_width: int
    block_width: int


def chains(graph: Graph) -> tuple[tuple[Step, ...], ...]:
    """Consecutive row-wise steps together, every other step alone."""
    groups: list[list[Step]] = []
    for step in graph.steps:
        if groups and step.row_wise and groups[-1][-1].row_wise:
            groups[-1].append(step)
        else:
            groups.append([step])
    return tuple(tuple(group) for group in groups)


def plan(graph: Graph) -> Plan:
    """Place every value but the final output, which goes to the caller's buffer."""
    groups = chains(graph)
    widths = graph.widths()
    final = graph.steps[-1].output
    made: dict[str, int] = {}
    used: dict[str, int] = {}
    chain_of: dict[str, int] = {}
    for index, group in enumerate(groups):
        for step in group:
            chain_of[step.label] = index
    for time, step in enumerate(graph.steps):
        made[step.output] = time
        for value in step.inputs:
            used[value] = time
    whole: list[str] = []
    block: list[str] = []
    for step in graph.steps:
        value = step.output
        if value == final:
            continue
        readers = {chain_of[reader.label] for reader in graph.steps if value in reader.inputs}
        (block if readers == {chain_of[step.label]} else whole).append(value)
    # In the whole area a chain's rows are read and written block by block, so a value lives for
    # whole chains.
    spans = {
        value: (chain_of[graph.steps[made[value]].label], chain_of[graph.steps[used[value]].label])
        for value in whole
    }
    inner = {value: (made[value], used[value]) for value in block}
    whole_places, whole_width = _first_fit(spans, widths)
    block_places, block_width = _first_fit(inner, widths)
    places = {
        value: Place(value in spans, offset, widths[value])
        for value, offset in {**whole_places, **block_places}.items()
    }
    return Plan(groups, places, whole_width, block_width)


def _first_fit(
    spans: Mapping[str, tuple[int, int]], widths: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Lowest offset for each value at which no value alive at the same time overlaps it."""
    placed: dict[str, int] = {}
    top = 0
    for value in sorted(spans, key=lambda name: (-widths[name], spans[name])):
        begin, end = spans[value]
        taken = sorted(
            (placed[other], placed[other] + widths[other])
            for other in placed
            if spans[other][0] <= end and begin <= spans[other][1]
        )
        offset = 0
        for low, high in taken:
            if offset + widths[value] <= low:
                break
            offset = max(offset, high)
        placed[value] = offset
        top = max(top, offset + widths[value])
    return placed, top
