"""Rendered lines of text whose words are known: the accuracy set of a text recogniser.

In: a seed and a count. Out: images of single lines, uint8 BGR of the height the recogniser takes,
and the text of each. Line i depends on the seed and i alone, so a larger set begins with a smaller
one. The font is the one Pillow carries (Aileron, CC0), so nothing of the machine shows in the
pixels; another release of Pillow may change single pixels, and with them the digest of the set.
Never here: a text drawn from what a model happens to read well.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from metering.loadgen.library import write_images

Line = npt.NDArray[np.uint8]

HEIGHT = 48
"""Rows of a prepared line, the height PP-OCR recognisers take."""

_VOCABULARY = (
    "account address amount annual approved article balance before booking branch building "
    "certificate change charge city client code company contract copy country credit customer "
    "daily date delivery department deposit discount district document due east exchange export "
    "express factory final fixed freight goods gross harbour height house import inspection "
    "insurance invoice item journal kitchen label ledger letter licence machine market material "
    "member meter minimum model month net north notice number office order package page paid "
    "payment period permit phone place postal price product project quality quantity quarter "
    "receipt reference refund region report request room route sample section serial service "
    "shipment signature size south square standard station storage street subject supply surface "
    "tax terminal ticket total transfer transport unit update value vehicle vendor version visit "
    "volume warehouse water week weight west width window winter yellow zone"
)
_WORDS = tuple(_VOCABULARY.split())
_FONT_SIZES = (22, 48)
_NOISE = (0.0, 40.0)
_TURN_DEGREES = 0.7


class TextLinesError(ValueError):
    """A set that cannot be made; the message names the field."""


@dataclass(frozen=True)
class TextLines:
    """``lines[i]`` is uint8 (48, width, 3) in BGR order; ``texts[i]`` is what it says."""

    lines: tuple[Line, ...]
    texts: tuple[str, ...]


def text_lines(seed: int, count: int) -> TextLines:
    """``count`` lines of 6 to 40 characters: words, amounts, dates, references and addresses.

    Raises TextLinesError for a negative seed or a count below one.
    """
    if seed < 0 or count < 1:
        raise TextLinesError(f"seed, count: got {seed}, {count}, wanted from 0 and from 1")
    drawn = [_draw_line(np.random.default_rng([seed, index])) for index in range(count)]
    return TextLines(tuple(line for line, _ in drawn), tuple(text for _, text in drawn))


def prepare(image: Image.Image) -> Line:
    """An RGB image as the recogniser takes it: 48 rows, its own proportions, BGR.

    Width is ceil(48 x width / height), resampled bilinearly, as PaddleOCR's
    ``resize_norm_img`` has it. Its padding is the system's own work, since it depends on the batch.
    """
    width = math.ceil(HEIGHT * image.width / image.height)
    resized = image.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(resized)[:, :, ::-1])


def scaled(line: Line) -> npt.NDArray[np.float32]:
    """A prepared line as (3, 48, width) float32 in [-1, 1]: (value / 255 - 0.5) / 0.5."""
    rows = line.astype(np.float32).transpose(2, 0, 1)
    return (rows / np.float32(255) - np.float32(0.5)) / np.float32(0.5)


def write_text_lines(made: TextLines, path: Path) -> None:
    """Write lines and texts as a query sample library; a system is handed the lines alone."""
    write_images(path, [scaled(line) for line in made.lines], made.texts)


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _draw_line(rng: np.random.Generator) -> tuple[Line, str]:
    text = _text(rng)
    font = _font(int(rng.integers(*_FONT_SIZES, endpoint=True)))
    paper = rng.integers(190, 256, size=3)
    ink = rng.integers(0, 130, size=3)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text))
    margin = max(3, (bottom - top) // 8)
    size = (right - left + 2 * margin, bottom - top + 2 * margin)
    image = Image.new("RGB", size, tuple(paper.tolist()))
    ImageDraw.Draw(image).text(
        (margin - left, margin - top), text, font=font, fill=tuple(ink.tolist())
    )
    turned = image.rotate(
        float(rng.uniform(-_TURN_DEGREES, _TURN_DEGREES)),
        resample=Image.Resampling.BICUBIC,
        fillcolor=tuple(paper.tolist()),
    )
    pixels = np.asarray(turned) + rng.normal(0, rng.uniform(*_NOISE), (size[1], size[0], 1))
    noisy = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return prepare(Image.fromarray(noisy)), text


def _text(rng: np.random.Generator) -> str:
    kinds = (_words, _amount, _date, _reference, _address)
    return kinds[int(rng.integers(len(kinds)))](rng)


def _word(rng: np.random.Generator) -> str:
    return _WORDS[int(rng.integers(len(_WORDS)))]


def _words(rng: np.random.Generator) -> str:
    words = [_word(rng) for _ in range(int(rng.integers(2, 5)))]
    return " ".join([words[0].capitalize(), *words[1:]])


def _amount(rng: np.random.Generator) -> str:
    value = rng.integers(100, 10_000_000) / 100
    currency = ("EUR", "USD", "CHF", "GBP")[int(rng.integers(4))]
    return f"{_word(rng).capitalize()} {_word(rng)}: {value:,.2f} {currency}"


def _date(rng: np.random.Generator) -> str:
    day, month, year = rng.integers(1, 29), rng.integers(1, 13), rng.integers(1990, 2040)
    return f"{_word(rng).capitalize()} {day:02d}.{month:02d}.{year}"


def _reference(rng: np.random.Generator) -> str:
    letters = "".join(chr(int(code)) for code in rng.integers(ord("A"), ord("Z") + 1, size=2))
    return f"{_word(rng).capitalize()} no. {letters}-{rng.integers(10_000, 1_000_000)}"


def _address(rng: np.random.Generator) -> str:
    return f"{rng.integers(1, 400)} {_word(rng).capitalize()} Street, {rng.integers(10000, 99999)}"
