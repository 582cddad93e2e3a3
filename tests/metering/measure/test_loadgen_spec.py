"""Specs refuse what cannot be run, round-trip through JSON, and become LoadGen's settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.loadgen import FloorError, RunSpec, SpecError, SutSpec
from metering.loadgen.arrange import arrange
from metering.loadgen.calibrate import sized
from metering.loadgen.detail_log import DetailLogError, parse
from metering.loadgen.library import LibraryError, load_library
from metering.loadgen.settings import differences, expected_effective, samples_per_query

MakeSpec = Callable[..., RunSpec]


def line(key: str, value: object, *, error: bool = False) -> bytes:
    entry = {"key": key, "value": value, "metadata": {"is_error": error, "is_warning": False}}
    return b":::MLLOG " + json.dumps(entry).encode() + b"\n"


def test_a_spec_round_trips_through_json(make_spec: MakeSpec) -> None:
    spec = make_spec(sut={"instances": 2}, cores=(0, 1), target_qps=1234.5)
    text = json.dumps(spec.to_dict())
    assert RunSpec.from_dict(json.loads(text)) == spec
    # Seeds pass 2**53 and fractions differ between printers, so both travel as text.
    assert json.loads(text)["seeds"]["schedule"] == "16159082839903944936"
    assert json.loads(text)["target_qps"] == "1234.5"


@pytest.mark.parametrize(
    ("sut", "fields", "named"),
    [
        ({}, {"scenario": "offline"}, "scenario"),
        ({}, {"mode": "Performance"}, "mode"),
        ({}, {"run_id": "../escape"}, "run_id"),
        ({}, {"target_qps": 0}, "target_qps"),
        ({}, {"target_qps": 1234567.8}, "six significant digits"),
        ({}, {"min_duration_ms": 0}, "min_duration_ms"),
        ({}, {"min_duration_ms": True}, "min_duration_ms"),
        ({}, {"cores": ()}, "cores"),
        ({}, {"cores": (0, 0)}, "cores"),
        ({}, {"model_sha256": "abc"}, "model_sha256"),
        ({"threads": 2}, {}, "sut.threads x sut.instances"),
        ({"threads": 0}, {}, "sut.threads"),
        ({"arrangement": "single", "batch": 4}, {}, "sut.batch"),
        ({"arrangement": "sorted"}, {}, "sut.arrangement"),
        ({"graph_optimization": "max"}, {}, "sut.graph_optimization"),
        ({"precision": "bfloat16"}, {}, "sut.precision"),
    ],
)
def test_a_spec_that_cannot_run_is_refused_by_name(
    make_spec: MakeSpec, sut: dict[str, Any], fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(SpecError, match=named):
        make_spec(sut=sut, **fields)


def test_a_misspelt_field_is_refused_not_dropped(make_spec: MakeSpec) -> None:
    data = make_spec().to_dict()
    with pytest.raises(SpecError, match="min_duration"):
        RunSpec.from_dict({**data, "min_duration": 5})
    with pytest.raises(SpecError, match="missing"):
        RunSpec.from_dict({"run_id": "x"})


def test_instances_get_disjoint_cores(make_spec: MakeSpec) -> None:
    spec = make_spec(sut={"threads": 2, "instances": 2}, cores=(4, 5, 6, 7))
    assert [spec.instance_cores(i) for i in range(2)] == [(4, 5), (6, 7)]


def test_two_arms_are_comparable_when_only_the_system_differs(make_spec: MakeSpec) -> None:
    base = make_spec(run_id="a", package_sha256="")
    other = make_spec(run_id="b", sut={"stack": "kernelgen", "package": "/p"})
    assert base.comparable() == other.comparable()
    assert dataclasses.replace(base, target_qps=2.0).comparable() != base.comparable()


@given(
    lengths=st.lists(st.integers(1, 128), min_size=1, max_size=200),
    arrangement=st.sampled_from(["padded", "single", "grouped", "ragged"]),
    batch=st.integers(1, 64),
)
def test_every_arrangement_hands_over_each_sample_once(
    lengths: list[int], arrangement: Any, batch: int
) -> None:
    batches = arrange(lengths, arrangement, batch)
    assert sorted(position for item in batches for position in item) == list(range(len(lengths)))
    assert max(len(item) for item in batches) <= (1 if arrangement == "single" else batch)
    if arrangement == "grouped":
        flat = [lengths[position] for item in batches for position in item]
        assert flat == sorted(lengths, reverse=True)
    else:
        assert [p for item in batches for p in item] == list(range(len(lengths)))


def test_sizing_gives_the_asked_number_of_samples(make_spec: MakeSpec) -> None:
    spec = sized(make_spec(), 900.0, 2.0)
    assert samples_per_query(spec) == pytest.approx(1800, rel=0.01)
    # LoadGen demands a quarter of the time asked for, so a probe on a busy machine may be wrong.
    assert spec.min_duration_ms == 500


def test_sizing_refuses_to_pre_generate_gigabytes_of_queries(make_spec: MakeSpec) -> None:
    """200 ns expected and 2 s asked took 8.8 GB and 80 s before the first query."""
    stream = make_spec(scenario="SingleStream", sut={"arrangement": "single", "batch": 1})
    with pytest.raises(FloorError, match="pre-generate"):
        sized(stream, 5e6, 2.0)
    assert sized(stream, 1000.0, 2.0).min_query_count >= 64
    with pytest.raises(ValueError, match="above 0"):
        sized(stream, 0.0, 2.0)


def test_every_difference_between_asked_and_effective_is_named(make_spec: MakeSpec) -> None:
    expected = expected_effective(make_spec(library_size=96))
    assert differences(expected, expected) == []
    changed = {**expected, "effective_test_mode": "AccuracyOnly", "effective_extra": "1"}
    del changed["effective_qsl_rng_seed"]
    found = differences(expected, changed)
    assert len(found) == 3
    assert "effective_qsl_rng_seed: missing" in " ".join(found)
    # Six digits of a rate are the same rate; a seed off by one is not the same seed.
    assert (
        differences({"effective_target_qps": "32016.4"}, {"effective_target_qps": "32016.4"}) == []
    )
    seed = "16159082839903944936"
    assert differences({"effective_seed": seed}, {"effective_seed": seed[:-1] + "7"})


def _said(value: bytes) -> bytes:
    return b':::MLLOG {"key": "a", "value": ' + value + b', "metadata": {}}\n'


def test_the_detail_log_is_read_strictly() -> None:
    log = parse(line("a", 1) + line("generic_message", "x") + line("generic_message", "y"))
    assert log.values["a"] == 1
    bad = parse(line("a", 1) + line("error_runtime", "boom", error=True))
    assert bad.errors == ("error_runtime: boom",)
    for data, reason in (
        (b"", "torn"),
        (b"hello\n" + line("a", 1), "line 1"),
        (line("a", 1)[:-1], "torn"),
        (line("a", 1) + line("a", 2), "second time"),
        (b":::MLLOG {not json}\n", "not JSON"),
        (b':::MLLOG {"key": "a"}\n', "lacks"),
        (_said(b"1e999999"), "not a number that LoadGen prints"),
        (_said(b"1e-999999"), "not a number that LoadGen prints"),
        (_said(b"NaN"), "not a number that LoadGen prints"),
        (_said(b"-Infinity"), "not a number that LoadGen prints"),
        (_said(b"9" * 5000), "not JSON"),
        (_said(b"[" * 100_000), "not JSON"),
    ):
        with pytest.raises(DetailLogError, match=reason):
            parse(data)


@pytest.mark.parametrize(
    "arrays",
    [
        {"ids": np.arange(4)},
        {"ids": np.arange(4), "offsets": np.array([0, 3])},
        {"ids": np.arange(4), "offsets": np.array([0, 2, 2, 4])},
        {"ids": np.arange(4, dtype=np.int32), "offsets": np.array([0, 4])},
        {"ids": np.array([{}], dtype=object), "offsets": np.array([0, 1])},
    ],
)
def test_a_damaged_sample_file_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(LibraryError):
        load_library(tmp_path / "s.npz")
    (tmp_path / "t.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(LibraryError):
        load_library(tmp_path / "t.npz")


def test_a_sut_spec_is_a_value(make_spec: MakeSpec) -> None:
    sut = SutSpec("openvino", threads=2, arrangement="grouped", batch=16)
    assert SutSpec.from_dict(sut.to_dict()) == sut
    assert hash(sut) == hash(SutSpec.from_dict(sut.to_dict()))
