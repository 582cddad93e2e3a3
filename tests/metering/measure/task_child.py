"""A child program for tests only: the product's own child, with a small system of each task.

``task_child.py CASE SPEC OUT PARENT``. The systems really read and really generate; a case that is
no system's name is one that answers otherwise than its task says. The product never loads this
file.
"""

from __future__ import annotations

import sys
import time

from tiny_decoder import TinyGenerator
from tiny_reader import GlyphReader

from metering.loadgen import child, harness, ledger

CASE = sys.argv[1]


class TooFewTexts(GlyphReader):
    def infer(self, batch):
        return super().infer(batch)[1:]


class Lying(TinyGenerator):
    """Goes on after its end, as a server that pads its answers to one length does."""

    def generate(self, batch, limit):
        yield from super().generate(batch, limit)
        if CASE == "pads":
            yield 0, [limit.end_token]

    def close(self):
        pass


class Chunked(TinyGenerator):
    """Everything after the first token at once, too long by one token."""

    def generate(self, batch, limit):
        for position in range(len(batch)):
            yield position, [1]
            yield position, [1] * limit.max_new_tokens


class Short(TinyGenerator):
    """Stops after two tokens without a word, as a connection that is cut does."""

    def generate(self, batch, limit):
        for position in range(len(batch)):
            yield position, [1]
            yield position, [2]


class Stalling(TinyGenerator):
    """Its first token in time, the second never."""

    def generate(self, batch, limit):
        yield 0, [1]
        time.sleep(3600)
        yield 0, [2]


class OneToken(TinyGenerator):
    """Says its end token first."""

    def generate(self, batch, limit):
        for position in range(len(batch)):
            yield position, [limit.end_token]


class Slow(TinyGenerator):
    """Twenty milliseconds a token."""

    def generate(self, batch, limit):
        for step in super().generate(batch, limit):
            time.sleep(0.02)
            yield step


class Nowhere(TinyGenerator):
    def generate(self, batch, limit):
        yield len(batch), [1]


class Fractions(TinyGenerator):
    def generate(self, batch, limit):
        yield 0, [1.5]


class BelowZero(TinyGenerator):
    def generate(self, batch, limit):
        yield 0, [-1]


def no_first_token():
    """What LoadGen itself makes of an answer whose first token nobody reported."""
    ledger.CompletionLedger.begin = lambda self, response_id, first: self._begun.add(response_id)


def other_bound():
    real = harness.test_settings

    def changed(loadgen, spec):
        settings = real(loadgen, spec)
        settings.ttft_latency = 5 * 10**15
        return settings

    harness.test_settings = changed


PATCHES = {"no_first_token": no_first_token, "other_bound": other_bound}
SYSTEMS = {
    "reads": GlyphReader,
    "generates": TinyGenerator,
    "too_few_texts": TooFewTexts,
    "pads": Lying,
    "too_long": Chunked,
    "short": Short,
    "stalls": Stalling,
    "nowhere": Nowhere,
    "slow": Slow,
    "fractions": Fractions,
    "below_zero": BelowZero,
    "one_token": OneToken,
}

if __name__ == "__main__":
    spec, out = child.prepare(sys.argv[2:])
    PATCHES.get(CASE, lambda: None)()
    system = SYSTEMS.get(CASE, TinyGenerator)
    child.execute(spec, out, lambda sut, model, output: system())
