"""The two libraries of the cache test: inputs nobody has seen, and a few held-out ones repeated.

In: the held-out samples of a task. Out: ``fresh.npz`` and ``repeated.npz``, equal in length one by
one, so that a system that computes does the same work on both. Fresh sentences are drawn
token by token; fresh lines of text are rendered, other words than any held-out line's, and brought
to the width of the line they stand beside: a look-up by likeness finds nothing.
Never here: a held-out input among the fresh ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image as Picture

from metering.datasets.text_lines import HEIGHT, scaled, text_lines
from metering.loadgen.library import (
    Ids,
    Image,
    LibraryError,
    load_images,
    load_library,
    load_texts,
    write_images,
    write_library,
)
from metering.loadgen.spec import Task

FRESH, REPEATED = "fresh.npz", "repeated.npz"
DISTINCT = 8
_SHORTEST = 6  # First and last token stay, so four are left to make sentences different.
_SEED = 0
# So many lines are rendered for each one wanted, to find one of nearly the right width.
_CHOICE = 2


def write_libraries(task: Task, held_out: Path, folder: Path, count: int) -> None:
    """Write both libraries of ``count`` samples, each whole or not at all. Raises LibraryError."""
    parts = {name: folder / f"part-{name}" for name in (FRESH, REPEATED)}
    if task == "text_recognition":
        known = set(load_texts(held_out))
        fresh, texts, chosen = make_lines(load_images(held_out), known, count)
        picks = [position % DISTINCT for position in range(count)]
        write_images(parts[FRESH], fresh, texts, compressed=True)
        write_images(parts[REPEATED], chosen, picks=picks, compressed=True)
    else:
        both = make_libraries(load_library(held_out), count)
        for part, library in zip(parts.values(), both, strict=True):
            write_library(part, library, compressed=True)
    for name, part in parts.items():
        part.replace(folder / name)


def make_lines(
    held_out: Sequence[Image], known: set[str], count: int
) -> tuple[list[Image], list[str], list[Image]]:
    """(``count`` fresh lines, their texts, the eight repeated ones, spread over the widths).

    A fresh line at position i is as wide as repeated line i mod 8. Raises LibraryError for too few
    lines, or lines of another height than are rendered.
    """
    heights = {line.shape[:2] for line in held_out}
    if heights != {(3, HEIGHT)}:
        raise LibraryError(
            f"samples: lines of (channels, rows) {sorted(heights)}, wanted (3, {HEIGHT}), which "
            "fresh ones are rendered in"
        )
    by_width = sorted({line.tobytes(): line for line in held_out}.values(), key=_width)
    if len(by_width) < DISTINCT:
        raise LibraryError(f"samples: {len(by_width)} different lines, wanted {DISTINCT}")
    places = np.linspace(0, len(by_width) - 1, DISTINCT).astype(int)
    chosen = [by_width[place] for place in places]
    pool = _pool(known, _CHOICE * count)
    fresh, texts = [], []
    for position in range(count):
        wanted = _width(chosen[position % DISTINCT])
        # The widest that fits: paper beside it is what a shorter line has. Squeezed if none does.
        fitting = [place for place, (line, _) in enumerate(pool) if line.shape[1] <= wanted]
        line, text = pool.pop(fitting[-1] if fitting else 0)
        fresh.append(scaled(_as_wide(line, wanted)))
        texts.append(text)
    return fresh, texts, chosen


def _width(line: Image) -> int:
    return int(line.shape[2])


def _pool(known: set[str], count: int) -> list[tuple[npt.NDArray[np.uint8], str]]:
    """Rendered lines and their texts by width, none twice and none that is known."""
    found: dict[str, npt.NDArray[np.uint8]] = {}
    seed = _SEED
    while len(found) < count:
        made = text_lines(seed, count)
        found |= {
            text: line
            for line, text in zip(made.lines, made.texts, strict=True)
            if text not in known
        }
        seed += 1
    return sorted(
        ((line, text) for text, line in list(found.items())[:count]),
        key=lambda pair: (pair[0].shape[1], pair[1]),
    )


def _as_wide(line: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """``line`` with paper of its own colour beside it, or squeezed, to ``width`` columns."""
    missing = width - line.shape[1]
    if missing < 0:
        squeezed = Picture.fromarray(line).resize((width, HEIGHT), Picture.Resampling.BILINEAR)
        return np.asarray(squeezed)
    paper = np.median(line[:, -1], axis=0).astype(np.uint8)
    beside = np.broadcast_to(paper, (HEIGHT, missing, 3))
    return np.concatenate([line, beside], axis=1)


def make_libraries(held_out: Sequence[Ids], count: int) -> tuple[list[Ids], list[Ids]]:
    """(fresh, repeated), ``count`` sentences each. Raises LibraryError for too short sentences.

    Eight sentences, spread over the lengths that occur, are the repeated ones. A fresh one has the
    length, the first and the last token of its repeated one; the rest is drawn from all tokens.
    """
    by_length = sorted((ids for ids in held_out if len(ids) >= _SHORTEST), key=len)
    if len(by_length) < DISTINCT:
        raise LibraryError(
            f"samples: {len(by_length)} sentences have {_SHORTEST} tokens, wanted {DISTINCT}"
        )
    places = np.linspace(0, len(by_length) - 1, DISTINCT).astype(int)
    chosen = [by_length[place] for place in places]
    tokens = np.unique(np.concatenate([ids[1:-1] for ids in held_out if len(ids) > 2]))
    rng = np.random.default_rng(_SEED)
    fresh: list[Ids] = []
    seen: set[bytes] = {ids.tobytes() for ids in held_out}
    for position in range(count):
        model = chosen[position % DISTINCT]
        for _ in range(1000):
            made = np.concatenate([model[:1], rng.choice(tokens, len(model) - 2), model[-1:]])
            if made.tobytes() not in seen:
                break
        else:
            raise LibraryError(f"samples: {len(tokens)} tokens do not make {count} sentences")
        seen.add(made.tobytes())
        fresh.append(made.astype(np.int64))
    return fresh, [chosen[position % DISTINCT] for position in range(count)]
