import argparse
import json

import numpy as np
import pytest

from kernelgen.bench.command import add_arguments, line, main
from kernelgen.bench.interleave import pinned, race, ratio_interval
from kernelgen.bench.models import Case, _row, correct
from kernelgen.bench.peers import arrangements, open_peers, pad
from kernelgen.emit import MODEL
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.machine import describe
from kernelgen.package import build, load
from kernelgen.schedule import space

MACHINE = describe(measure=False)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return TextEncoder(str(build_encoder(tmp_path_factory.mktemp("m") / "tiny.onnx", layers=1)))


@pytest.fixture(scope="module")
def package(encoder, tmp_path_factory):
    chosen = {name: space(op, MACHINE).default() for name, op in encoder.graph.operators.items()}
    chosen = {k: s.with_choice("mr", 5) if "mr" in s.as_dict else s for k, s in chosen.items()}
    chosen[MODEL] = space(encoder, MACHINE).default()
    return build(encoder.graph, chosen, tmp_path_factory.mktemp("p") / "tiny", MACHINE)


SAMPLES = [np.arange(5), np.arange(9), np.arange(5) + 3]


def test_arrangements_hold_every_sample_once():
    for name, batches in arrangements(SAMPLES).items():
        real = [
            tuple(row[: keep.sum()])
            for ids, mask in batches
            for row, keep in zip(ids, mask, strict=True)
        ]
        assert sorted(real) == sorted(tuple(one) for one in SAMPLES), name
    assert len(arrangements(SAMPLES)["grouped"]) == 2
    assert list(arrangements(SAMPLES[:1])) == ["single"]


def test_peers_agree_with_the_oracle(encoder):
    peers = open_peers(encoder)
    assert "onnxruntime" in peers
    offsets = np.array([0, 5, 14, 19])
    wanted = encoder.embed(np.concatenate(SAMPLES), offsets)
    for name, peer in peers.items():
        assert np.allclose(peer(*pad(SAMPLES)), wanted, rtol=0, atol=1e-4), name


def test_a_row_has_the_agreed_fields(encoder, package):
    with load(package) as ours:
        row = _row(
            Case("three", tuple(SAMPLES)), encoder, ours, open_peers(encoder), MACHINE, 0, True
        )
    assert list(row) == [
        "suite", "name", "shape", "dtype", "threads", "ours_us", "peers", "best_peer", "ratio",
        "ratio_ci", "roofline_fraction", "correct", "class",
    ]  # fmt: skip
    assert row["correct"] is True
    assert row["class"] == "measured"
    assert row["peers"][row["best_peer"]] == min(row["peers"].values())
    assert row["ratio_ci"][0] <= row["ratio"] <= row["ratio_ci"][1]
    assert set(row["peers"]) >= {"onnxruntime padded", "onnxruntime single", "onnxruntime grouped"}
    assert json.loads(json.dumps(row)) == row
    assert "three" in line(row)


def test_a_wrong_answer_shows(encoder, package):
    class Wrong:
        def __init__(self, inner):
            self.inner = inner

        def run(self, samples):
            return self.inner.run(samples) * np.float32(1.001)

    with load(package) as ours:
        case = Case("x", tuple(SAMPLES))
        assert correct(case, encoder, ours)
        assert not correct(case, encoder, Wrong(ours))


def test_every_side_runs_equally_often_in_changing_order():
    calls = []
    times = race(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=20, calls=2, seed=1
    )
    assert calls.count("a") == calls.count("b") == 1 + 20 * 3
    firsts = {calls[2 + 6 * number] for number in range(20)}
    assert firsts == {"a", "b"}
    assert len(times["a"]) == 20


def test_ratio_interval_of_known_times():
    point, low, high = ratio_interval(np.full(9, 30.0), np.full(9, 20.0), seed=0)
    assert (point, low, high) == (1.5, 1.5, 1.5)
    noisy = np.random.default_rng(0).uniform(15, 25, 99)
    point, low, high = ratio_interval(np.full(99, 30.0), noisy, seed=0)
    assert low < point < high
    assert 1.2 < low < high < 2.0


def test_pinning_is_undone_and_checked():
    import os

    before = os.sched_getaffinity(0)
    core = min(before)
    with pinned(core):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ValueError, match="core: got 9999"), pinned(9999):
        pass


def test_wrong_use_is_one_line_and_exit_two(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = f"--package {tmp_path} --model {tmp_path}/m.onnx --tokenizer {tmp_path}/t.json"
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    assert main(parser.parse_args(text.split())) == 2
    err = capsys.readouterr().err
    assert err.startswith("bench: ")
    assert len(err.splitlines()) == 1
