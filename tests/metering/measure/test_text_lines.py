"""The accuracy set of a recogniser: made from a seed alone, read back whole, truth kept apart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metering.__main__ import main
from metering.datasets.text_lines import (
    HEIGHT,
    TextLines,
    TextLinesError,
    prepare,
    text_lines,
    write_text_lines,
)
from metering.loadgen.files import sha256_file
from metering.loadgen.library import load_samples, load_texts


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


def test_the_library_holds_scaled_lines_and_their_texts(made: TextLines, tmp_path: Path) -> None:
    write_text_lines(made, tmp_path / "lines.npz")
    samples = load_samples(tmp_path / "lines.npz", "text_recognition")
    assert load_texts(tmp_path / "lines.npz") == list(made.texts)
    for line, sample in zip(made.lines, samples, strict=True):
        assert sample.shape == (3, HEIGHT, line.shape[1])
        assert sample.dtype == np.float32
        assert -1 <= sample.min() < sample.max() <= 1
        again = np.rint((sample.transpose(1, 2, 0) * 0.5 + 0.5) * 255).astype(np.uint8)
        np.testing.assert_array_equal(again, line)


@pytest.mark.parametrize(("seed", "count"), [(-1, 3), (0, 0)])
def test_a_set_that_cannot_be_made_is_refused(seed: int, count: int) -> None:
    with pytest.raises(TextLinesError, match="wanted from"):
        text_lines(seed, count)


def test_the_command_writes_the_set_of_its_seed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lines.npz"
    asked = ["lines", "--seed", "7", "--count", "3", "--out", str(out)]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"lines": 3, "samples_sha256": sha256_file(out), "seed": 7}
    assert load_texts(out) == list(text_lines(7, 3).texts)
    wrong = {
        "wanted a new file": asked,
        "ends in .npz": [*asked[:-1], str(tmp_path / "lines.zip")],
        "wanted from 0": ["lines", "--seed", "-1", *asked[3:-1], str(tmp_path / "a.npz")],
        "at most 10000": [*asked[:4], "10001", "--out", str(tmp_path / "b.npz")],
        "No such file": [*asked[:-1], str(tmp_path / "no/lines.npz")],
    }
    for reason, arguments in wrong.items():
        assert main(arguments) == 2
        assert reason in capsys.readouterr().err
