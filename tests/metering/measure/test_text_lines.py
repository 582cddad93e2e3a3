"""The accuracy set of a recogniser: made from a seed alone, read back whole, truth kept apart."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metering.datasets.text_lines import (
    HEIGHT,
    TextLines,
    TextLinesError,
    load_samples,
    load_truth,
    prepare,
    save_samples,
    save_truth,
    text_lines,
)


@pytest.fixture(scope="module")
def made() -> TextLines:
    return text_lines(7, 12)


def test_a_line_depends_on_seed_and_place_alone(made: TextLines) -> None:
    fewer, other = text_lines(7, 3), text_lines(8, 3)
    assert fewer.texts == made.texts[:3]
    for line, again in zip(fewer.lines, made.lines, strict=False):
        np.testing.assert_array_equal(line, again)
    assert other.texts != fewer.texts


def test_lines_are_what_the_recogniser_takes(made: TextLines) -> None:
    for line, text in zip(made.lines, made.texts, strict=True):
        assert line.dtype == np.uint8
        assert line.shape[0] == HEIGHT
        assert line.shape[2] == 3
        assert 6 <= len(text) <= 45
        # Ink on paper: a line of one colour would be read as nothing by any model.
        assert int(line.max()) - int(line.min()) > 60
    assert len(set(made.texts)) == len(made.texts)


@pytest.mark.parametrize(("width", "height"), [(320, 48), (321, 48), (100, 31), (10, 96)])
def test_preparation_keeps_proportions_and_turns_colours_round(width: int, height: int) -> None:
    line = prepare(Image.new("RGB", (width, height), (200, 100, 50)))
    assert line.shape == (48, math.ceil(48 * width / height), 3)
    assert line[0, 0].tolist() == [50, 100, 200]


def test_samples_and_truth_are_two_files(made: TextLines, tmp_path: Path) -> None:
    save_samples(made.lines, tmp_path / "lines.npz")
    save_truth(made.texts, tmp_path / "truth.json")
    again = load_samples(tmp_path / "lines.npz")
    assert len(again) == len(made.lines)
    for line, same in zip(made.lines, again, strict=True):
        np.testing.assert_array_equal(line, same)
    assert load_truth(tmp_path / "truth.json") == made.texts
    with np.load(tmp_path / "lines.npz") as arrays:
        assert set(arrays.files) == {"pixels", "widths"}


def spoiled(**changes: np.ndarray) -> dict[str, np.ndarray]:
    good = {
        "pixels": np.zeros(HEIGHT * 3 * 5, dtype=np.uint8),
        "widths": np.array([2, 3], dtype=np.int64),
    }
    return {name: value for name, value in {**good, **changes}.items() if value.size}


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (spoiled(widths=np.array([], dtype=np.int64)), "wanted an .npz with pixels and widths"),
        (spoiled(pixels=np.zeros(HEIGHT * 3 * 5, dtype=np.float32)), "one uint8 vector"),
        (spoiled(widths=np.array([2, 3], dtype=np.int32)), "int64"),
        (spoiled(widths=np.array([5, 0], dtype=np.int64)), "from 1"),
        (spoiled(widths=np.array([2, 4], dtype=np.int64)), "do not cut pixels"),
    ],
)
def test_a_damaged_sample_file_is_refused(
    arrays: dict[str, np.ndarray], reason: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "lines.npz", **arrays)
    with pytest.raises(TextLinesError, match=reason):
        load_samples(tmp_path / "lines.npz")


@pytest.mark.parametrize("text", ["", "{}", '["a", ""]', "[1]", "\x80"])
def test_a_damaged_truth_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text(text, encoding="latin-1")
    with pytest.raises(TextLinesError, match=r"truth\.json"):
        load_truth(tmp_path / "truth.json")


@pytest.mark.parametrize(("seed", "count"), [(-1, 3), (0, 0)])
def test_a_set_that_cannot_be_made_is_refused(seed: int, count: int) -> None:
    with pytest.raises(TextLinesError, match="wanted from"):
        text_lines(seed, count)
