"""A real decoder with one layer, in NumPy with fixed weights: it computes every token it says.

Two ways to the same tokens: :func:`whole` runs the whole sequence again for each token, and
:class:`Decoder` keeps the keys and values of what it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

VOCABULARY, WIDTH, END = 96, 32, 69
_RNG = np.random.default_rng(11)
TABLE = _RNG.standard_normal((VOCABULARY, WIDTH))
HEAD = _RNG.standard_normal((VOCABULARY, WIDTH))
QUERY, KEY, VALUE, OUT = (_RNG.standard_normal((4, WIDTH, WIDTH)) / np.sqrt(WIDTH)).copy()
UP = _RNG.standard_normal((WIDTH, 4 * WIDTH)) / np.sqrt(WIDTH)
DOWN = _RNG.standard_normal((4 * WIDTH, WIDTH)) / np.sqrt(4 * WIDTH)


def _place(position: int) -> np.ndarray:
    return np.cos(position / np.geomspace(1, 100, WIDTH))


def _next(state: np.ndarray, seen: np.ndarray, values: np.ndarray) -> int:
    scores = seen @ (state @ QUERY) / np.sqrt(WIDTH)
    weights = np.exp(scores - scores.max())
    mixed = state + (weights / weights.sum()) @ values @ OUT
    return int(np.argmax(HEAD @ (mixed + np.tanh(mixed @ UP) @ DOWN)))


def whole(prompt: Sequence[int], limit: int, end: int | None) -> list[int]:
    """The answer, recomputed from the first token of the prompt for each of its tokens."""
    tokens = [int(token) for token in prompt]
    for _ in range(limit):
        states = np.array([TABLE[token] + _place(i) for i, token in enumerate(tokens)])
        tokens.append(_next(states[-1], states @ KEY, states @ VALUE))
        if tokens[-1] == end:
            break
    return tokens[len(prompt) :]


class Decoder:
    """One sequence; ``step`` takes a token and says the next."""

    def __init__(self) -> None:
        self._keys: list[np.ndarray] = []
        self._values: list[np.ndarray] = []

    def step(self, token: int) -> int:
        state = TABLE[token] + _place(len(self._keys))
        self._keys.append(state @ KEY)
        self._values.append(state @ VALUE)
        return _next(state, np.array(self._keys), np.array(self._values))


class TinyGenerator:
    """The decoder as a system: all prompts of a batch go forward together."""

    def generate(self, batch, limit):
        decoders, tokens, open_ = [], [], []
        for position, prompt in enumerate(batch):
            decoder = Decoder()
            token = [decoder.step(int(item)) for item in prompt][-1]
            decoders.append(decoder)
            tokens.append([token])
            yield position, [token]
            if token != limit.end_token:
                open_.append(position)
        while open_:
            for position in list(open_):
                told = tokens[position]
                told.append(decoders[position].step(told[-1]))
                yield position, told[-1:]
                if told[-1] == limit.end_token or len(told) == limit.max_new_tokens:
                    open_.remove(position)

    def close(self):
        pass
