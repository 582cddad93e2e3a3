"""The PP-OCRv4 recogniser on stock stacks: rendered lines, answers against the truth."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelgen import zoo
from metering import loadgen
from metering.datasets.reading import ReadingFloor, reading_accuracy
from metering.datasets.scoring import reading_of_run
from metering.datasets.text_lines import scaled, text_lines, write_text_lines
from metering.loadgen import EvidenceError, RunSpec, SutSpec
from metering.loadgen.library import load_texts
from metering.loadgen.verdict import accuracy_texts
from metering.stacks import StackError, open_recogniser
from metering.stacks.system import OutputPort
from metering.stacks.text_recognition import choose_scores, pad_lines, read_alphabet, read_scores
from metering.uplift import Traffic, mix_uplift
from tests.conftest import MODEL_CACHE

MakeSpec = Callable[..., RunSpec]
LINES = 6
# As the field scores this family: spaces left out. These few lines are read almost perfectly.
FLOOR = ReadingFloor(Decimal("0.8"), Decimal("0.03"), ignore_spaces=True)


@pytest.fixture(scope="module")
def model() -> Path:
    return zoo.fetch("pp-ocrv4-recogniser", MODEL_CACHE)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.npz"
    write_text_lines(text_lines(11, LINES), path)
    return path


@pytest.fixture
def recognising(make_spec: MakeSpec, model: Path, lines: Path) -> MakeSpec:
    def make(sut: dict[str, Any], **fields: Any) -> RunSpec:
        values = {"min_query_count": LINES, "warmup_ms": 1, **fields}
        return make_spec(
            sut, model=str(model), samples=str(lines), task="text_recognition", **values
        )

    return make


@pytest.mark.parametrize(
    "sut",
    [
        {"stack": "onnxruntime", "arrangement": "single", "batch": 1},
        {
            "stack": "openvino",
            "graph_optimization": "default",
            "arrangement": "grouped",
            "batch": 3,
        },
    ],
)
def test_the_lines_are_read_and_timed(
    recognising: MakeSpec, lines: Path, tmp_path: Path, sut: dict[str, Any]
) -> None:
    """Offline: the accuracy run against the truth, then a timed run of which some is kept."""
    checked = loadgen.run(recognising(sut, mode="accuracy"), tmp_path / "accuracy")
    assert checked.state == "VALID", checked.reasons
    read = accuracy_texts((tmp_path / "accuracy/mlperf_log_accuracy.json").read_bytes())
    truth = load_texts(lines)
    found = reading_of_run(tmp_path / "accuracy", lines, FLOOR)
    assert found.passed, (truth, read)
    assert found == reading_accuracy(truth, read, FLOOR)
    # The same answers in another order are wrong: the score looks at each line.
    assert not reading_accuracy(truth, read[1:] + read[:1], FLOOR).passed
    timed = loadgen.run(recognising(sut, sampled_outputs=LINES), tmp_path / "timed")
    assert timed.state == "VALID", timed.reasons
    assert timed.samples_per_second is not None
    _show_the_mix(timed.samples_per_second)
    _refuse_other_evidence(tmp_path, lines)


def _refuse_other_evidence(folder: Path, lines: Path) -> None:
    """No score from a timed run, from another library, or from a log that was edited."""
    with pytest.raises(EvidenceError, match="wanted accuracy of text_recognition"):
        reading_of_run(folder / "timed", lines, FLOOR)
    write_text_lines(text_lines(12, LINES), folder / "easier.npz")
    with pytest.raises(EvidenceError, match=r"was asked from .*, easier\.npz is"):
        reading_of_run(folder / "accuracy", folder / "easier.npz", FLOOR)
    log = folder / "accuracy/mlperf_log_accuracy.json"
    log.write_bytes(log.read_bytes().replace(b'"data" : "', b'"data" : "41', 1))
    with pytest.raises(EvidenceError, match="SHA-256"):
        reading_of_run(folder / "accuracy", lines, FLOOR)


def _show_the_mix(rate: Decimal) -> None:
    """Without kernels of its own the recogniser stays at its baseline: the mix says so in time."""
    sentences = Traffic(samples=3_000_000, baseline_samples_per_second=Decimal(500))
    read = Traffic(samples=40_000, baseline_samples_per_second=rate)
    found = mix_uplift(
        {"encoder": 0.5, "recogniser": 0.0}, {"encoder": sentences, "recogniser": read}
    )
    reading_s = Decimal(40_000) / rate
    wanted = (Decimal(6000) + reading_s) / (Decimal(4000) + reading_s) - 1
    assert found == pytest.approx(float(wanted), rel=1e-12)
    assert 0 < found < 0.5
    assert mix_uplift({"recogniser": 0.0}, {"recogniser": read}) == 0.0


def test_padding_is_zero_beyond_each_line_and_never_narrow() -> None:
    rng = np.random.default_rng(0)
    short, long = (rng.random((3, 48, width), dtype=np.float32) for width in (100, 417))
    alone, both = pad_lines([short]), pad_lines([short, long])
    assert alone.shape == (1, 3, 48, 320)
    assert both.shape == (2, 3, 48, 417)
    np.testing.assert_array_equal(both[0, :, :, :100], short)
    assert not both[0, :, :, 100:].any()
    np.testing.assert_array_equal(both[1], long)


def test_scaling_is_that_of_the_model_card() -> None:
    line = np.array([[[0, 255, 51]]], dtype=np.uint8)
    np.testing.assert_allclose(scaled(line)[:, 0, 0], [-1, 1, -0.6], atol=1e-6)


def test_the_alphabet_is_the_models_own(model: Path) -> None:
    alphabet = read_alphabet(model)
    assert len(alphabet) == 6625
    assert (alphabet[0], alphabet[1], alphabet[-1]) == ("", "'", " ")


def test_a_model_without_an_alphabet_is_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(StackError, match="'character'"):
        read_alphabet(inputs["model"])


def test_scores_of_another_alphabet_are_refused() -> None:
    with pytest.raises(StackError, match="labels of the"):
        read_scores(np.zeros((1, 4, 7), dtype=np.float32), ("", "a", " "))


def test_the_scores_are_the_only_float_output_of_rank_three() -> None:
    ports = [OutputPort(("a",), 2, True), OutputPort(("b",), 3, True), OutputPort(("c",), 3, False)]
    assert choose_scores(ports, "") == 1
    assert choose_scores(ports, "a") == 0
    for given in (ports[:1], [*ports, OutputPort(("d",), 3, True)]):
        with pytest.raises(StackError, match="name one of"):
            choose_scores(given, "")


def test_a_stack_that_reads_no_text_says_so(model: Path) -> None:
    with pytest.raises(StackError, match="reads no text"):
        open_recogniser(SutSpec("kernelgen", package="/nonexistent"), model, "")
