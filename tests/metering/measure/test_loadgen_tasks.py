"""Text recognition and generation through the real LoadGen; what is not an answer is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering import loadgen, stacks
from metering.loadgen import RunSpec, SpecError, SutSpec, verdict
from metering.loadgen.files import json_bytes
from metering.loadgen.library import (
    LibraryError,
    load_images,
    load_texts,
    write_images,
    write_library,
)
from metering.loadgen.supervisor import supervise
from tests.metering.measure.tiny_decoder import END, VOCABULARY, whole
from tests.metering.measure.tiny_reader import GLYPHS

MakeSpec = Callable[..., RunSpec]
CHILD = Path(__file__).with_name("task_child.py")
LIMIT, PROMPTS = 10, 16


def child(case: str) -> tuple[str, ...]:
    return (sys.executable, str(CHILD), case)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Images of digits with noise, of unequal width, and their texts."""
    rng = np.random.default_rng(6)
    texts = ["".join(rng.choice(list("0123456789"), size=size)) for size in rng.integers(1, 9, 20)]
    images = []
    for text in texts:
        image = np.concatenate([GLYPHS[int(digit)] for digit in text], axis=1)
        noise = rng.normal(0, 0.1, (3, *image.shape))
        images.append((image + noise).astype(np.float32))
    path = tmp_path_factory.mktemp("lines") / "lines.npz"
    write_images(path, images, texts)
    return path, texts


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, VOCABULARY, size=size) for size in rng.integers(2, 9, PROMPTS)]
    path = tmp_path_factory.mktemp("prompts") / "prompts.npz"
    write_library(path, ids)
    return path, ids


@pytest.fixture
def reading(make_spec: MakeSpec, lines: tuple[Path, list[str]]) -> MakeSpec:
    def make(**fields: Any) -> RunSpec:
        sut = {"stack": "null", "batch": 4, "arrangement": "grouped", **fields.pop("sut", {})}
        return make_spec(sut, samples=str(lines[0]), task="text_recognition", **fields)

    return make


@pytest.fixture
def generating(make_spec: MakeSpec, prompts: tuple[Path, list[np.ndarray]]) -> MakeSpec:
    def make(**fields: Any) -> RunSpec:
        values = {
            "samples": str(prompts[0]),
            "task": "generation",
            "max_new_tokens": LIMIT,
            "end_token": END,
            "min_query_count": 32,
            "warmup_ms": 0,
            **fields,
        }
        return make_spec({"stack": "null", "batch": 4, **values.pop("sut", {})}, **values)

    return make


def test_recognised_texts_are_in_the_accuracy_log(
    reading: MakeSpec, lines: tuple[Path, list[str]], tmp_path: Path
) -> None:
    result = supervise(reading(mode="accuracy"), tmp_path / "run", child=child("reads"))
    assert result.state == "VALID", result.reasons
    log = (tmp_path / "run" / verdict.ACCURACY).read_bytes()
    assert verdict.accuracy_texts(log) == lines[1] == load_texts(lines[0])
    assert loadgen.load_run(tmp_path / "run") == result


def test_a_timed_run_of_texts_keeps_some_of_them(
    reading: MakeSpec, lines: tuple[Path, list[str]], tmp_path: Path
) -> None:
    spec = reading(min_query_count=4000, sampled_outputs=40)
    result = supervise(spec, tmp_path / "run", child=child("reads"))
    assert result.state == "VALID", result.reasons
    assert result.tokens is None
    records = json.loads((tmp_path / "run" / verdict.ACCURACY).read_text())
    assert 10 < len(records) < 100
    for record in records:
        assert bytes.fromhex(record["data"]).decode() == lines[1][record["qsl_idx"]]


@pytest.mark.parametrize(
    ("scenario", "batch"), [("Offline", 5), ("SingleStream", 1)], ids=["offline", "stream"]
)
def test_generated_tokens_are_in_the_accuracy_log(
    generating: MakeSpec,
    prompts: tuple[Path, list[np.ndarray]],
    tmp_path: Path,
    scenario: str,
    batch: int,
) -> None:
    """Whole in both ways of asking, and the first tokens are LoadGen's own record of them."""
    spec = generating(mode="accuracy", scenario=scenario, sut={"batch": batch})
    result = supervise(spec, tmp_path / "run", child=child("generates"))
    assert result.state == "VALID", result.reasons
    log = (tmp_path / "run" / verdict.ACCURACY).read_bytes()
    expected = [whole(prompt, LIMIT, END) for prompt in prompts[1]]
    assert verdict.accuracy_tokens(log) == expected
    assert len({len(answer) for answer in expected}) > 1
    for record in json.loads(log):
        assert record["token_count"] == len(expected[record["qsl_idx"]])
        assert ("token_data" in record) == (scenario == "SingleStream")
    assert loadgen.load_run(tmp_path / "run") == result


@pytest.mark.parametrize(
    ("case", "fields", "state", "reason"),
    [
        ("pads", {}, "ERROR", "after its end"),
        ("too_long", {}, "ERROR", "wanted at most 10"),
        ("short", {}, "ERROR", "stopped before their limit"),
        ("nowhere", {}, "ERROR", "no such position"),
        ("fractions", {}, "ERROR", "'float' object cannot be interpreted as an integer"),
        ("below_zero", {}, "ERROR", "token ids from -1 to -1, wanted 0 to"),
        ("stalls", {"stall_limit_s": 0.8}, "HUNG", "no progress"),
        # LoadGen goes on over memory that holds no such time, and calls the run VALID.
        ("no_first_token", {"scenario": "SingleStream"}, "ERROR", "before it's first token"),
    ],
)
def test_what_is_no_answer_ends_the_run(
    generating: MakeSpec,
    tmp_path: Path,
    case: str,
    fields: dict[str, Any],
    state: str,
    reason: str,
) -> None:
    result = supervise(generating(**fields), tmp_path / "run", child=child(case))
    assert result.state == state, result.reasons
    assert reason in "; ".join(result.reasons)


def test_an_answer_of_one_token_never_reaches_loadgen(
    generating: MakeSpec, prompts: tuple[Path, list[np.ndarray]], tmp_path: Path
) -> None:
    """Gotcha 12: LoadGen makes a mean time per token of 9.2e14 ns of it."""
    first = whole(prompts[1][0], 1, None)[0]
    result = supervise(
        generating(end_token=first, mode="accuracy"), tmp_path / "run", child=child("generates")
    )
    assert result.state == "ERROR"
    assert "an answer of 1 tokens has no time per output token" in result.reasons[0]


def test_too_few_texts_end_the_run(reading: MakeSpec, tmp_path: Path) -> None:
    result = supervise(reading(), tmp_path / "run", child=child("too_few_texts"))
    assert result.state == "ERROR"
    assert "wanted 4 texts" in result.reasons[0]


def test_a_stack_without_the_task_says_so(tmp_path: Path) -> None:
    for open_system in (stacks.open_recogniser, stacks.open_generator):
        with pytest.raises(stacks.StackError, match=r"got 'abacus', wanted one of"):
            open_system(SutSpec("abacus"), tmp_path, "")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda r: r.update(data=r["data"] + "45000000"), "tokens after the end|told of"),
        (lambda r: r.update(data=r["data"][:8]), "an answer of 1 tokens"),
        (lambda r: r.update(data=r["data"] + "00"), "not whole int32"),
        (lambda r: r.update(token_count=99), "told of 99 tokens"),
        (lambda r: r.update(token_data="FFFFFFFF"), "reported first is not the first"),
    ],
    ids=["padded", "one", "torn", "count", "first"],
)
def test_edited_answers_are_refused(
    generating: MakeSpec, edit: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """A log that LoadGen could not have written for this spec, whatever its digest."""
    spec = generating(mode="accuracy", library_size=1)
    record = {"seq_id": 0, "qsl_idx": 0, "data": "0100000045000000", "token_count": 2}
    check = verdict._output_faults
    assert check(spec, json.dumps([record]).encode()) == []
    edit(record)
    found = check(spec, json.dumps([record]).encode())
    assert len(found) == 1
    assert any(part in found[0] for part in reason.split("|"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"task": "translation"}, "task"),
        ({"max_new_tokens": 5}, "max_new_tokens: got 5, wanted 0"),
        ({"end_token": 5}, "end_token"),
        ({"task": "generation"}, "max_new_tokens"),
        ({"task": "generation", "max_new_tokens": 1}, "max_new_tokens"),
        ({"task": "generation", "max_new_tokens": 2, "end_token": -1}, "end_token"),
    ],
)
def test_a_task_is_refused_by_name(make_spec: MakeSpec, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        make_spec(**fields)


def test_a_spec_from_before_the_tasks_keeps_its_bytes(recorded: Path) -> None:
    """Digests of specs and results are in evidence; a field nobody uses must not change them."""
    paths = sorted(recorded.rglob("spec.json"))
    assert len(paths) > 20
    for path in paths:
        spec = RunSpec.from_dict(json.loads(path.read_bytes()))
        assert json_bytes(spec.to_dict()) == path.read_bytes()
        result = path.with_name("result.json")
        again = loadgen.RunResult.from_dict(json.loads(result.read_bytes()))
        assert json_bytes(again.to_dict()) == result.read_bytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pixels": np.zeros(7, np.float64)}, "pixels"),
        ({"pixels": np.zeros(7, np.float32)}, "do not cut"),
        ({"shapes": np.array([[3, 0, 2]])}, "each at least 1"),
        ({"shapes": np.array([3, 2, 1])}, "each at least 1"),
        ({"pixels": np.array([{}], dtype=object)}, "cannot read"),
        ({"texts": np.frombuffer(b"\xff\xff", np.uint8)}, "UTF-8"),
        ({"text_offsets": np.array([0, 1])}, "one text"),
        ({"text_offsets": np.array([0, 2, 1])}, "one text"),
    ],
)
def test_a_damaged_image_library_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    good: dict[str, Any] = {
        "pixels": np.zeros(12, np.float32),
        "shapes": np.array([[3, 1, 2], [3, 2, 1]]),
        "texts": np.frombuffer(b"ab", np.uint8),
        "text_offsets": np.array([0, 1, 2]),
    }
    path = tmp_path / "lines.npz"
    np.savez(path, **good)
    assert load_texts(path) == ["a", "b"]
    assert [image.shape for image in load_images(path)] == [(3, 1, 2), (3, 2, 1)]
    np.savez(path, **{**good, **change})
    with pytest.raises(LibraryError, match=reason):
        load_texts(path)
