"""Float32 products by multiply-adds: weights in panels, a register tile of sums.

In: buffers of a program under way, sizes, a schedule's choices. Out: packed weights, the statements
of a tile. Never here: what follows the sums, or in which order tiles come.

Weights lie panel after panel, k after k, so that one pass streams them in address order; the last
panel is filled up with zeros. A panel serves every tile of a row block while it is near. A lone
tile fetches a fixed distance ahead in the stream and runs on into what follows the weights; several
tiles share out the fetching of the next panel.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.sketches.gemm_epilogue import Epilogue, reach
from kernelgen.tile.build import Build, Memory, Value, fill, fma, select, span

LINE = 16
"""Floats of a cache line."""

SUMS = 8
"""Vectors of sums that hide the latency of adding: thin tiles take several turns of k apart."""


def pack(b: Build, w: Memory, k: int, n: int, lanes: int, deep: int = 0) -> Memory:
    """Weights [k, n] as rows of `lanes`, [n / lanes][k], written in `prepare`. With `deep` a panel
    has that many rows, those beyond k zero.
    """
    deep = deep or k
    panels = b.buffer("panels", "f32", (-(-n // lanes) * deep, lanes), "packed")
    with b.prepare(), b.loop("p", 0, -(-n // lanes)) as p:
        with b.loop("kk", 0, k) as kk:
            panels[p * deep + kk, span(0, lanes)] = w[kk, span(p * lanes, lanes, n - p * lanes)]
        if deep > k:
            with b.loop("kk", k, deep) as kk:
                panels[p * deep + kk, span(0, lanes)] = fill(0.0, "f32", lanes)
    return panels


Ahead = tuple[Value | int, Value | int]


@dataclass(frozen=True)
class Panels:
    """Where a product's numbers are: rows of `a`, panels of `lanes` columns of k weights each,
    filled up to `deep`. `unroll` turns of k go together; fetching runs `distance` floats ahead, 0
    is not at all, into the first or the second `cache`.
    """

    b: Build
    a: Memory
    weights: Memory
    k: int
    deep: int
    lanes: int
    vector: int
    unroll: int
    distance: int
    cache: int

    def ahead(self, tiles: Value | None, t: Value) -> Ahead | None:
        """At which float past the panel's first the fetching of tile `t` begins, and how many
        floats further it goes with every k. `tiles` share a panel, None is a tile on its own.
        """
        if not self.distance:
            return None
        if tiles is None:
            return self.distance, self.lanes
        pace = self.b.let("pace", (tiles + (self.lanes - 1)) // tiles)
        share = (t * pace + self.lanes) * self.deep
        return self.b.let("ahead", select(tiles.equals(1), self.distance, share)), pace

    def fetch(self, ahead: Ahead | None, kk: Value) -> None:
        if ahead is not None:
            start, pace = ahead
            lines = max(1, self.lanes // LINE)
            for i in range(lines):
                far = kk * pace + start + pace * i // lines
                self.b.prefetch(self.weights, (self.b.dim("panel"), far), self.cache)

    def tile(self, top: Value, r: int, after: Epilogue, ahead: Ahead | None) -> None:
        """Products of `r` rows from `top` on and the panel that begins at `panel`."""
        b, k, lanes = self.b, self.k, self.lanes
        column = b.dim("column")
        panel = b.dim("panel")
        apart = max(1, min(SUMS // (r * max(1, lanes // self.vector)), k))
        empty = fill(0.0, "f32", *((r, lanes) if r > 1 else (lanes,)))
        begun = after.begin(column, r, lanes)
        accs = [b.let(f"acc{r}_{u}", empty if u else begun) for u in range(apart)]

        def step(u: int, kk: Value) -> None:
            w = b.let(f"w{r}_{u}", self.weights[panel + kk, span(0, lanes)])
            x = self.a[span(top, r), span(kk, 1)] if r > 1 else self.a[top, kk]
            accs[u] = b.let(f"acc{r}_{u}", fma(x, w, accs[u]))

        with b.loop("kk", 0, k // apart * apart, apart, unroll=max(1, self.unroll // apart)) as kk:
            for u in range(apart):
                self.fetch(ahead, kk + u)
                step(u, kk + u)
        for u in range(k % apart):
            step(u, b.let(f"rest{r}_{u}", k // apart * apart + u))
        for one in accs[1:]:
            accs[0] = b.let(f"acc{r}_0", accs[0] + one)
        across = reach(column, lanes, after.n)
        after.store(b, (span(top, r) if r > 1 else top, across), f"acc{r}_0")
