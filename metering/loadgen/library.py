"""The query sample library of a task, kept in one ``.npz`` file without pickled objects.

In: for sentences and prompts ``ids`` (int64, all token ids end to end) and ``offsets`` (int64,
n + 1); for images ``pixels`` (float32, all values end to end), ``shapes`` (int64, (n, 3): channels,
height, width) and, where the right answers are known, ``texts`` (uint8, all texts in UTF-8 end to
end) and ``text_offsets`` (int64, n + 1); a library that asks the same images again names them in
``picks`` (int64, m), and m is then its size and that of its texts. Out: one array per sample. Kept
apart from the kernel engine so that a measuring process loads nothing but the stack it measures.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metering.loadgen.spec import Task

Ids = npt.NDArray[np.int64]
Image = npt.NDArray[np.float32]


class LibraryError(ValueError):
    """A sample file that cannot be used; the message names the file and what is wrong."""


def load_samples(path: Path, task: Task) -> Sequence[npt.NDArray[Any]]:
    """Every sample of the file, in order: images, or token ids. Raises LibraryError."""
    return load_images(path) if task == "text_recognition" else load_library(path)


def load_library(path: Path) -> list[Ids]:
    """Every sentence or prompt of the file, in order. Raises LibraryError."""
    ids, offsets = _arrays(path, "ids", "offsets")
    if ids.dtype != np.int64 or offsets.dtype != np.int64 or ids.ndim != 1 or offsets.ndim != 1:
        raise LibraryError(f"samples: {path.name} must hold two int64 vectors, ids and offsets")
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(ids) or np.diff(offsets).min() < 1:
        raise LibraryError(f"samples: {path.name} has offsets that do not cut ids into sentences")
    return [ids[start:stop] for start, stop in itertools.pairwise(offsets)]


def load_images(path: Path) -> list[Image]:
    """Every image of the file, (channels, height, width) float32, in order. Raises LibraryError."""
    pixels, shapes, picks = _arrays(path, "pixels", "shapes", optional="picks")
    if pixels.dtype != np.float32 or pixels.ndim != 1 or shapes.dtype != np.int64:
        raise LibraryError(
            f"samples: {path.name} must hold pixels, a float32 vector, and shapes, int64"
        )
    if shapes.ndim != 2 or shapes.shape[1] != 3 or len(shapes) == 0 or shapes.min() < 1:
        raise LibraryError(f"samples: {path.name} has shapes, wanted (n, 3), each at least 1")
    sizes = [height * width * channels for channels, height, width in shapes.tolist()]
    if sum(sizes) != len(pixels):
        raise LibraryError(f"samples: {path.name} has shapes that do not cut pixels into images")
    ends = list(itertools.accumulate(sizes))
    images = [
        pixels[end - size : end].reshape(shape)
        for end, size, shape in zip(ends, sizes, shapes.tolist(), strict=True)
    ]
    return images if picks is None else _picked(path, images, picks)


def _picked(path: Path, images: list[Image], picks: npt.NDArray[Any]) -> list[Image]:
    if picks.dtype != np.int64 or picks.ndim != 1 or len(picks) == 0:
        raise LibraryError(f"samples: {path.name} must hold picks as an int64 vector")
    if not 0 <= picks.min() <= picks.max() < len(images):
        raise LibraryError(f"samples: {path.name} picks an image that it does not hold")
    return [images[pick] for pick in picks.tolist()]


def load_texts(path: Path) -> list[str]:
    """The right answer of every image of the file, in order. Raises LibraryError."""
    texts, offsets = _arrays(path, "texts", "text_offsets")
    count = len(load_images(path))
    if texts.dtype != np.uint8 or texts.ndim != 1 or offsets.dtype != np.int64:
        raise LibraryError(f"samples: {path.name} must hold texts in uint8, text_offsets in int64")
    if (
        offsets.shape != (count + 1,)
        or (offsets[0], offsets[-1]) != (0, len(texts))
        or np.diff(offsets).min() < 0
    ):
        raise LibraryError(f"samples: {path.name} has no one text for each of {count} images")
    try:
        return [texts[start:stop].tobytes().decode() for start, stop in itertools.pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise LibraryError(f"samples: {path.name} has a text that is not UTF-8") from error


def write_library(path: Path, samples: Sequence[Ids], *, compressed: bool = False) -> None:
    """Write sentences or prompts, each a vector of token ids."""
    ids = np.concatenate(samples).astype(np.int64)
    (np.savez_compressed if compressed else np.savez)(path, ids=ids, offsets=_offsets(samples))


def write_images(
    path: Path,
    images: Sequence[Image],
    texts: Sequence[str] = (),
    *,
    picks: Sequence[int] = (),
    compressed: bool = False,
) -> None:
    """Write images and, where they are known, the text of each sample.

    With ``picks`` sample i is image ``picks[i]``, so that one image may be asked many times.
    """
    count = len(picks) or len(images)
    arrays: dict[str, npt.NDArray[Any]] = {
        "pixels": np.concatenate([image.ravel() for image in images]).astype(np.float32),
        "shapes": np.array([image.shape for image in images], dtype=np.int64),
    }
    if picks:
        arrays["picks"] = np.array(picks, dtype=np.int64)
    if texts:
        if len(texts) != count:
            raise LibraryError(f"samples: got {len(texts)} texts, wanted {count}, as samples")
        encoded = [text.encode() for text in texts]
        arrays["texts"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        arrays["text_offsets"] = _offsets(encoded)
    (np.savez_compressed if compressed else np.savez)(path, **arrays)  # type: ignore[arg-type]


def _offsets(items: Sequence[Any]) -> Ids:
    return np.cumsum([0, *(len(item) for item in items)], dtype=np.int64)


def _arrays(path: Path, *names: str, optional: str = "") -> tuple[Any, ...]:
    """The arrays called ``names``; after them the one called ``optional``, or None."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            found = tuple(arrays[name] for name in names)
            if not optional:
                return found
            return (*found, arrays[optional] if optional in arrays.files else None)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LibraryError(
            f"samples: cannot read {path.name}: {error}; wanted an .npz with {' and '.join(names)}"
        ) from error
