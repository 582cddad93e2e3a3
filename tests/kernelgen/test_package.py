"""A small encoder compiled into a package, run, tampered with and copied."""

import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from kernelgen.emit import MODEL, model_source
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.machine import describe
from kernelgen.ops import GemmBias
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.package import PackageError, build, check_files, copy_evidence, load, seal
from kernelgen.package.build import instruction_sets, matrix_words_of
from kernelgen.package.manifest import MANIFEST, read_manifest, write_manifest
from kernelgen.schedule import Schedule, ScheduleError, space
from kernelgen.targets import find
from kernelgen.targets.proof import machine_of

MACHINE = describe(measure=False)

pytestmark = pytest.mark.skipif("avx2" not in MACHINE.isa, reason="needs AVX2")


def schedules(encoder, machine, rows=48) -> dict[str, Schedule]:
    found = {name: space(op, machine).default() for name, op in encoder.graph.operators.items()}
    # Small register tiles: fewer variants, so the model compiles in a moment.
    found = {k: s.with_choice("mr", 5) if "mr" in s.as_dict else s for k, s in found.items()}
    return {**found, MODEL: space(encoder, machine).default().with_choice("rows", rows)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return TextEncoder(str(build_encoder(tmp_path_factory.mktemp("model") / "tiny.onnx")))


@pytest.fixture(scope="module")
def package(encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("package") / "tiny"
    files = {"verdicts.json": b"[]\n"}
    return build(encoder.graph, schedules(encoder, MACHINE), out, MACHINE, files=files)


@pytest.fixture
def copy(package, tmp_path):
    return shutil.copytree(package, tmp_path / "copy")


def pieces(arrays):
    offsets = arrays["offsets"]
    return [arrays["ids"][a:b] for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize(
    ("n", "tokens", "regime"),
    [
        (1, 1, "nominal"),
        (1, 3, "nominal"),
        (1, 48, "nominal"),
        (1, 49, "nominal"),
        (1, 128, "nominal"),
        (8, 150, "ragged"),
        (32, 600, "nominal"),
        (5, 100, "structured"),
    ],
)
def test_embeddings_meet_the_float64_oracle(package, encoder, n, tokens, regime):
    dims = {"n": n, "tokens": tokens}
    arrays = encoder.sample(np.random.default_rng(tokens), dims, regime)
    with load(package) as model:
        got = model.run(pieces(arrays))
    error = np.abs(got - encoder.oracle(arrays, dims)["embeddings"])
    assert got.dtype == np.float32
    assert (error <= encoder.error_bound(arrays, dims)["embeddings"]).all()


def test_a_sentence_is_the_same_alone_and_in_any_company(package, encoder):
    arrays = encoder.sample(np.random.default_rng(1), {"n": 6, "tokens": 100}, "ragged")
    samples = pieces(arrays)
    with load(package) as model:
        together = model.run(samples)
        # Tiles may split differently with the row count, so equal to rounding, and order does not
        # matter.
        alone = np.concatenate([model.run([one]) for one in samples])
        turned = model.run(samples[::-1])[::-1]
        again = model.run(samples)
    assert np.allclose(alone, together, rtol=0, atol=2e-6)
    assert np.allclose(turned, together, rtol=0, atol=2e-6)
    assert np.array_equal(again, together)


WIDE = pytest.mark.skipif("avx512vl" not in MACHINE.isa, reason="needs vectors of 16 floats")


@pytest.mark.parametrize("width", [8, pytest.param(16, marks=WIDE)])
def test_other_widths_and_blocks_give_the_same_answer(encoder, tmp_path, width):
    isa = ("avx2", "bmi2", "f16c", "fma") if width == 8 else MACHINE.isa
    machine = replace(MACHINE, isa=isa)
    chosen = schedules(encoder, machine, rows=72)
    assert max(s.as_dict.get("vector", 0) for s in chosen.values()) == width
    made = build(encoder.graph, chosen, tmp_path / "other", machine)
    dims = {"n": 4, "tokens": 200}
    arrays = encoder.sample(np.random.default_rng(2), dims, "nominal")
    with load(made) as model:
        error = np.abs(model.run(pieces(arrays)) - encoder.oracle(arrays, dims)["embeddings"])
    assert (error <= encoder.error_bound(arrays, dims)["embeddings"]).all()


@pytest.mark.skipif(
    not {"amx_bf16", "amx_tile"} <= set(MACHINE.isa),
    reason="needs a matrix unit that the system lets us use",
)
def test_a_package_for_the_matrix_unit(encoder, tmp_path):
    chosen = {
        name: one.with_choice("tiles", 17) if "tiles" in one.as_dict else one
        for name, one in schedules(encoder, MACHINE, rows=96).items()
    }
    made = build(encoder.graph, chosen, tmp_path / "tiles", MACHINE)
    manifest = read_manifest(made)
    assert {"amx_bf16", "amx_tile"} <= set(manifest["isa"])
    assert manifest["model"]["arithmetic"] == "bf16x3"
    with load(made) as model:
        for n, tokens in [(1, 5), (1, 40), (9, 230)]:
            dims = {"n": n, "tokens": tokens}
            arrays = encoder.sample(np.random.default_rng(2), dims, "nominal")
            error = np.abs(model.run(pieces(arrays)) - encoder.oracle(arrays, dims)["embeddings"])
            assert (error <= encoder.error_bound(arrays, dims)["embeddings"]).all()


@pytest.mark.parametrize(
    ("operator", "word", "needs"),
    [
        (GemmBias(64, 64), "dot_bf16", {"amx_bf16", "amx_tile"}),
        (GemmInt8(64, 64), "dot_i8", {"amx_int8", "amx_tile"}),
    ],
    ids=["floats", "bytes"],
)
def test_the_unit_a_package_needs_is_the_one_its_kernels_use(operator, word, needs):
    machine = machine_of(find("x86-64-amx"))
    schedule = space(operator, machine).default().with_choice("tiles", 16)
    words = matrix_words_of({operator.name: operator}, {operator.name: schedule})
    assert words == {word}
    units = {one for one in instruction_sets([schedule], words, machine) if "amx" in one}
    assert units == needs
    plain = schedule.with_choice("tiles", 0)
    assert not matrix_words_of({operator.name: operator}, {operator.name: plain})


def test_the_manifest_says_how_to_build_it_again(package, encoder):
    manifest = read_manifest(package)
    assert manifest["model"]["sha256"] == encoder.onnx.sha256
    assert manifest["machine_fingerprint"] == MACHINE.fingerprint
    for operator in manifest["operators"]:
        assert Schedule.parse(operator["schedule"]).operator == operator["name"]
        assert operator["schedule"] in (package / operator["source"]).read_text()
    replayed = {
        s.operator: s for s in (Schedule.parse(o["schedule"]) for o in manifest["operators"])
    }
    replayed[MODEL] = Schedule.parse(manifest["model_schedule"])
    assert model_source(encoder.graph, replayed) == (package / "src" / "model.c").read_text()
    assert {"lib/model.so", "weights.bin", "src/model.c", "verdicts.json"} <= set(manifest["files"])


def test_a_missing_schedule_is_named(encoder):
    chosen = schedules(encoder, MACHINE)
    del chosen["gemm_bias_128x384"]
    with pytest.raises(ScheduleError, match="gemm_bias_128x384"):
        model_source(encoder.graph, chosen)


@pytest.mark.parametrize("name", ["lib/model.so", "weights.bin", "src/model.c", "verdicts.json"])
def test_a_changed_file_is_refused(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(bytes(content))
    with pytest.raises(PackageError, match=f"{name}: got sha256"):
        load(copy)


def test_a_missing_file_is_refused(copy):
    (copy / "weights.bin").unlink()
    with pytest.raises(PackageError, match=r"weights.bin: no such file"):
        load(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"isa": ["avx1024"]}, "package needs avx1024"),
        ({"architecture": "vax"}, "vax"),
        ({"format": "other/9"}, "format 'other/9'"),
        ({"files": {"../outside": "0", "lib/model.so": "0"}}, "outside the package"),
    ],
)
def test_manifests_that_do_not_fit_are_refused(copy, change, message):
    write_manifest(copy, {**read_manifest(copy), **change})
    with pytest.raises(PackageError, match=message):
        load(copy)


def test_no_package_at_all(tmp_path):
    with pytest.raises(PackageError, match="wanted a kernel package"):
        load(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(PackageError, match="not JSON"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([np.array([1]), np.array([], np.int64)], r"token_ids\[1\]: empty"),
        ([np.array([1, 500])], r"token_ids\[0\]: ids outside 0..499"),
        ([np.array([3]), np.array([-1])], r"token_ids\[1\]: ids outside"),
        ([np.zeros(161, np.int64)], r"token_ids\[0\]: 161 tokens, wanted at most 160"),
        ([np.array([1.5])], r"token_ids: got float64\[1\], wanted 1-D arrays of integers"),
        ([np.array([3]), np.zeros((2, 2), np.int64)], r"int64\[1\], int64\[2, 2\], wanted 1-D"),
    ],
)
def test_bad_requests_are_named(package, samples, message):
    with load(package) as model, pytest.raises(ValueError, match=message):
        model.run(samples)


def test_requests_of_any_size_in_any_order_keep_their_own_answers(package):
    samples = [np.arange(1, 1 + length, dtype=np.int32) for length in (3, 150, 1, 40)]
    with load(package) as model:
        answers = [model.run([one]) for one in samples]
        kept = [answer.copy() for answer in answers]
        together = model.run(samples)
        assert np.array_equal(model.run([samples[2]]), kept[2])
    for answer, copy in zip(answers, kept, strict=True):
        assert np.array_equal(answer, copy)
    assert np.allclose(together, np.concatenate(kept), rtol=0, atol=2e-6)


def test_an_empty_request_and_a_closed_model(package):
    model = load(package)
    assert model.run([]).shape == (0, 128)
    model.close()
    with pytest.raises(PackageError, match="closed"):
        model.run([np.array([1])])


def test_evidence_has_everything_but_the_weights(package, tmp_path):
    evidence = copy_evidence(package, tmp_path / "evidence")
    assert not (evidence / "weights.bin").exists()
    manifest = read_manifest(evidence)
    assert "weights.bin" in manifest["files"]
    check_files(evidence, manifest, weights=False)
    with pytest.raises(PackageError, match=r"weights.bin"):
        check_files(evidence, manifest)


def test_sealing_binds_new_files(copy):
    before = json.loads((copy / MANIFEST).read_text())
    (copy / "ledger.jsonl").write_text("{}\n")
    digest = seal(copy, {"judge": "1"})
    after = read_manifest(copy)
    assert after["judge"] == "1"
    assert set(after["files"]) - set(before["files"]) == {"ledger.jsonl"}
    assert len(digest) == 64
    load(copy).close()


def test_building_again_replaces_the_package(package, encoder, tmp_path):
    out = tmp_path / "twice"
    chosen = schedules(encoder, MACHINE)
    build(encoder.graph, chosen, out, MACHINE, files={"old.txt": b"1"})
    build(encoder.graph, chosen, out, MACHINE)
    assert not (out / "old.txt").exists()
    assert [item.name for item in tmp_path.iterdir()] == ["twice"]
    assert (out / "src" / "model.c").read_bytes() == (package / "src" / "model.c").read_bytes()
