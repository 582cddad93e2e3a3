"""A child program for tests only: the product's own child, with a system that is fast by cheating.

``cheating_child.py CASE[:FILE] SPEC OUT PARENT``. Every case really computes; what it computes, and
how often, is the cheat. The product never loads this file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from metering.loadgen import child
from metering.loadgen.library import load_library

CASE, _, FILE = sys.argv[1].partition(":")
SIZE, WIDTH = 96, 8
WEIGHTS = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE


def compute(ids: np.ndarray, layers: int = 12) -> np.ndarray:
    """One row (WIDTH,) that depends on every token; time grows with ``layers`` alone."""
    hidden = np.outer(np.resize(ids, SIZE), np.ones(SIZE)).astype(np.float32) / 512
    for _ in range(layers):
        hidden = np.tanh(hidden @ WEIGHTS + hidden)
    return hidden.sum(axis=0)[:WIDTH] + ids[:1].astype(np.float32)


class Honest:
    def infer(self, batch):
        return np.stack([self.one(ids) for ids in batch]).astype(np.float32)

    def one(self, ids):
        return compute(ids)

    def close(self):
        pass


class Caching(Honest):
    """Answers from memory what it has been asked before."""

    layers = 12

    def __init__(self):
        self.known = {}

    def one(self, ids):
        key = ids.tobytes()
        if key not in self.known:
            self.known[key] = compute(ids, self.layers)
        return self.known[key]


class Laborious(Caching):
    """Computes for so long what it does not know that no clock mistakes it for remembering."""

    layers = 480


class Guessing(Honest):
    """As fast on new questions, because it does not answer them."""

    def one(self, ids):
        return np.ones(WIDTH)


class Stalling(Honest):
    """A third of the work in most queries, and a hundred times it in every fortieth."""

    count = 0

    def one(self, ids):
        self.count += 1
        return compute(ids, 1200 if self.count % 40 == 0 else 4)


class Tuned(Caching):
    """Comes with the answers to one set of questions, and learns no others."""

    def __init__(self):
        self.known = {ids.tobytes(): compute(ids) for ids in load_library(Path(FILE))}

    def one(self, ids):
        known = self.known.get(ids.tobytes())
        return compute(ids) if known is None else known


class Rounded(Honest):
    """Answers with the eight bits of mantissa that bfloat16 has."""

    def one(self, ids):
        whole = compute(ids).astype(np.float32)
        return (whole.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


class HeldBack(Honest):
    """Does the same work and waits after it, as a process does that may use little of its core."""

    def one(self, ids):
        answer = compute(ids)
        time.sleep(0.015)
        return answer


SYSTEMS = {
    "honest": Honest,
    "caching": Caching,
    "laborious": Laborious,
    "guessing": Guessing,
    "stalling": Stalling,
    "tuned": Tuned,
    "rounded": Rounded,
    "held back": HeldBack,
}

if __name__ == "__main__":
    spec, out = child.prepare(sys.argv[2:])
    child.execute(spec, out, lambda sut, model, output: SYSTEMS[CASE]())
