"""Packages somebody has tampered with: `verify` and `run` refuse each with exit 1 or 2 and one
line, and nothing of the package is loaded, compiled or run on the way.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kernelgen.__main__ import main
from kernelgen.agent.gate import package_candidate
from kernelgen.commands import verify
from kernelgen.emit import MODEL
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.judge import claims
from kernelgen.judge.session import Refusal
from kernelgen.machine import describe
from kernelgen.package import PackageError, build, load, read_manifest, seal
from kernelgen.package.manifest import LIBRARY, MANIFEST, WEIGHTS, write_manifest
from kernelgen.schedule import space
from kernelgen.targets.cpu import compile_shared
from kernelgen.workload import save_samples

MACHINE = describe(measure=False)
Change = Callable[[Path], None]


@dataclass(frozen=True)
class Place:
    encoder: TextEncoder
    package: Path
    samples: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("tampering")
    model = build_encoder(
        folder / "tiny.onnx", layers=1, heads=1, head_size=16, ffn=32, vocabulary=90, positions=64
    )
    encoder = TextEncoder(str(model))
    chosen = {name: space(op, MACHINE).default() for name, op in encoder.graph.operators.items()}
    # Small register tiles: fewer variants, so the model compiles in a moment.
    chosen = {k: s.with_choice("mr", 5) if "mr" in s.as_dict else s for k, s in chosen.items()}
    chosen[MODEL] = space(encoder, MACHINE).default()
    package = build(encoder.graph, chosen, folder / "package", MACHINE)
    save_samples(folder / "samples.npz", [np.array([1, 2, 3])])
    return Place(encoder, package, folder / "samples.npz")


@pytest.fixture
def copy(place: Place, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place.package, tmp_path / "copy"))


class _Events:
    """What the interpreter was asked to load or start. A hook stays for good, so there is one."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.seen is not None and event in ("ctypes.dlopen", "subprocess.Popen", "os.exec"):
            words = [str(arguments[0])]
            if Path(words[0]).name.startswith("guard-"):
                # What the guard is to start: it runs nothing else.
                words = [str(word) for word in cast("Sequence[object]", arguments[1])][4:]
            self.seen.append(words[0])

    @contextmanager
    def recorded(self) -> Iterator[list[str]]:
        self.seen = []
        try:
            yield self.seen
        finally:
            self.seen = None


EVENTS = _Events()


def _turned(name: str) -> Change:
    def change(package: Path) -> None:
        data = bytearray((package / name).read_bytes())
        data[len(data) // 2] ^= 1
        (package / name).write_bytes(bytes(data))

    return change


def _stated(**fields: object) -> Change:
    """The manifest with other fields; None takes one away."""

    def change(package: Path) -> None:
        manifest: Mapping[str, Any] = {**read_manifest(package), **fields}
        write_manifest(package, {k: v for k, v in manifest.items() if v is not None})

    return change


def _model(**fields: object) -> Change:
    def change(package: Path) -> None:
        manifest = read_manifest(package)
        model = {**manifest["model"], **fields}
        manifest["model"] = {k: v for k, v in model.items() if v is not None}
        write_manifest(package, manifest)

    return change


def _operator(place: int = 0, **fields: object) -> Change:
    def change(package: Path) -> None:
        manifest = read_manifest(package)
        manifest["operators"][place] |= fields
        write_manifest(package, manifest)

    return change


def _size(value: object) -> Change:
    """The width of the embedding's rows, changed in the operator's own sizes."""

    def change(package: Path) -> None:
        manifest = read_manifest(package)
        entry = next(e for e in manifest["operators"] if e["name"].startswith("embed"))
        entry["spec"]["hidden"] = value
        write_manifest(package, manifest)

    return change


def _text(old: str, new: str) -> Change:
    """The manifest's own text, for what no dictionary holds."""

    def change(package: Path) -> None:
        path = package / MANIFEST
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def _sealed(change: Change) -> Change:
    """With digests that fit again, as the one who changes a file would leave them."""

    def both(package: Path) -> None:
        change(package)
        seal(package, {})

    return both


def _swapped(package: Path) -> None:
    data = (package / WEIGHTS).read_bytes()
    half = len(data) // 2
    (package / WEIGHTS).write_bytes(data[half:] + data[:half])


def _cut(package: Path) -> None:
    data = (package / WEIGHTS).read_bytes()
    (package / WEIGHTS).write_bytes(data[:-64])


def _without(name: str) -> Change:
    return lambda package: (package / name).unlink()


def _with(name: str, content: bytes = b"x") -> Change:
    return lambda package: [(package / name).write_bytes(content), None][1]


def _linked(name: str) -> Change:
    """The same content, reached through a link."""

    def change(package: Path) -> None:
        shutil.move(package / name, package.parent / "elsewhere")
        (package / name).symlink_to(package.parent / "elsewhere")

    return change


def _piped(package: Path) -> None:
    (package / MANIFEST).unlink()
    os.mkfifo(package / MANIFEST)


def _runs_on_loading(package: Path) -> None:
    text = "".join(
        f'__attribute__((visibility("default"))) int {name}(void) {{ return 0; }}\n'
        for name in ("kernel", "prepare", "packed_bytes", "scratch_bytes")
    )
    text += "__attribute__((constructor)) static void early(void) { __builtin_trap(); }\n"
    made = compile_shared(text, ("-O1",), package / "x.so")
    assert made.path is not None, made.stderr
    (package / "x.c").unlink()
    (package / "x.so").replace(package / LIBRARY)


HUGE = 10**18
TAMPERED: Mapping[str, tuple[Change, str]] = {
    "a byte of the binary": (_turned(LIBRARY), "lib/model.so: got sha256"),
    "a byte of the weights": (_turned(WEIGHTS), "weights.bin: got sha256"),
    "halves of the weights swapped": (_swapped, "weights.bin: got sha256"),
    "weights cut": (_cut, "weights.bin: got sha256"),
    "weights cut, sealed": (_sealed(_cut), "weights.bin: got"),
    "weights that are a pickle, sealed": (
        _sealed(lambda p: _with(WEIGHTS, b"\x80\x04\x95" + (p / WEIGHTS).read_bytes()[3:])(p)),
        "a pickle",
    ),
    "source edited": (_turned("src/model.c"), "src/model.c: got sha256"),
    "source missing": (_without("src/model.c"), "src/model.c: no such file"),
    "weights missing": (_without(WEIGHTS), "weights.bin: no such file"),
    "binary missing": (_without(LIBRARY), "lib/model.so: no such file"),
    "manifest missing": (_without(MANIFEST), "manifest.json: no such file"),
    "a file too many": (_with("src/extra.c"), "src/extra.c"),
    "a file too many, odd name": (_with("a\nb\x1b[2J"), "the manifest does not know"),
    "a module too many, sealed": (_sealed(_with("sitecustomize.py")), "nothing in a package runs"),
    "weights behind a link": (_linked(WEIGHTS), "a link"),
    "binary behind a link": (_linked(LIBRARY), "a link"),
    "folder behind a link": (_linked("src"), "a link"),
    "manifest behind a link": (_linked(MANIFEST), "a link"),
    "manifest is a pipe": (_piped, "pipe"),
    "manifest is no JSON": (_with(MANIFEST, b"{"), "manifest.json"),
    "manifest is no text": (_with(MANIFEST, b"\xff\xfe"), "manifest.json"),
    "manifest is a list": (_with(MANIFEST, b"[]"), "format"),
    "manifest nested deep": (_with(MANIFEST, b"[" * 200_000), "manifest.json"),
    "manifest of another format": (_stated(format="other/9"), "format 'other/9'"),
    "manifest with a field twice": (_text('"isa": [', '"isa": [], "isa": ['), "occurs twice"),
    "runs on loading, sealed": (_sealed(_runs_on_loading), "constructor"),
    "no model": (_stated(model=None), "model"),
    "no digests": (_stated(files=None), "files"),
    "digests of files outside": (_stated(files={"../x": "0" * 64, LIBRARY: "0" * 64}), "outside"),
    "no operators": (_stated(operators=None), "operators"),
    "operators are words": (_stated(operators=["gemm"]), "wanted objects"),
    "flags name a file": (_stated(flags=["-include", "/etc/passwd"]), "flag"),
    "another processor": (_stated(architecture="riscv64"), "riscv64"),
    "an instruction set nobody knows": (_stated(isa=["avx1024"]), "avx1024"),
    "an instruction set it does not hold": (_stated(isa=["amx_int8"]), "amx_int8"),
    "instruction sets of another processor": (_stated(isa=["asimd", "sve"]), "asimd"),
    "instruction sets are a number": (_stated(isa=512), "isa"),
    "narrower rows, which the kernel would overrun": (_model(hidden=1), "model.hidden"),
    "wider rows": (_model(hidden=32), "model.hidden"),
    "more words": (_model(vocabulary=91), "model.vocabulary"),
    "no width": (_model(hidden=None), "model.hidden"),
    "a fraction as width": (_model(hidden=16.0), "model.hidden"),
    "true as width": (_model(hidden=True), "model.hidden"),
    "a huge width": (_model(hidden=HUGE), "model.hidden"),
    "negative tokens": (_model(max_tokens=-1), "model.max_tokens"),
    "huge tokens": (_model(max_tokens=HUGE), "model.max_tokens"),
    "weights of a huge size": (_stated(weights_bytes=HUGE), "weights.bin: got"),
    "a number of 5000 digits": (_text('"weights_bytes": ', f'"weights_bytes": {"9" * 5000}'), ""),
    "a number beyond floats": (_text('"hidden": 16', '"hidden": 1e999'), "model.hidden"),
    "not a number": (_text('"hidden": 16', '"hidden": NaN'), "NaN"),
    "an operator of another size": (_size(17), "its sizes are those of"),
    "an operator of a huge size": (_size(HUGE), "wanted int below 2**31"),
    "an operator of a large size": (_size(2**31 - 1), "bytes, wanted"),
    "an operator of a negative size": (_size(-16), "wanted"),
    "an operator's size is a word": (_size("16"), "wanted int"),
    "an operator's size is a list": (_size([16]), "wanted int"),
    "an operator nobody knows": (_operator(spec={"family": "miner"}), "miner"),
    "an operator without sizes": (_operator(spec=None), "family"),
    "an operator named in colour": (_operator(name="\x1b[31mgemm"), "wanted a plain word"),
    "an operator's source outside": (_operator(source="../x.c"), "no file of the package"),
    "an operator of another schedule": (_operator(schedule="gemm: mr=9"), "schedule"),
    "an operator without a schedule": (_operator(schedule=None), "schedule"),
    "an operator with a plug-in": (_operator(flags=["-fplugin=x.so"]), "-fplugin"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_each_is_refused_in_one_line_and_nothing_runs(
    name: str, place: Place, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = TAMPERED[name]
    change(copy)
    for command in (["verify", str(copy)], ["run", str(copy), "--input", str(place.samples)]):
        with EVENTS.recorded() as events:
            assert main(command) in (1, 2), command
        told = capsys.readouterr()
        text = told.out + told.err
        assert text.count("\n") == 1, text
        assert words in text
        assert text.rstrip("\n").isprintable(), text
        # The one program that looks at a library without running it.
        assert [event for event in events if not event.endswith("objdump")] == []


def test_the_package_itself_is_fine(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(place.package, tmp_path / "moved"))
    assert main(["run", str(moved), "--input", str(place.samples), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dimensions"] == 16


def test_the_loader_refuses_what_the_commands_refuse(copy: Path) -> None:
    _model(hidden=1)(copy)
    with EVENTS.recorded() as events, pytest.raises(PackageError, match=r"model\.hidden"):
        load(copy)
    assert not events


def test_sealed_weights_of_another_model_are_told_apart(place: Place, copy: Path) -> None:
    """Digests fit and the binary is right: only packing once more shows it."""
    assert verify.weights_row(copy, place.encoder.graph)["passed"] is True
    _sealed(_swapped)(copy)
    assert verify.weights_row(copy, place.encoder.graph)["passed"] is False


def test_an_operators_source_that_was_edited_and_sealed_is_judged(
    place: Place, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_manifest(copy)
    entry = next(e for e in manifest["operators"] if e["name"].startswith("mean_pool"))
    path = copy / entry["source"]
    text = path.read_text()
    head, brace, body = text.rpartition("int kernel(")[2].partition("{")
    start = text.rpartition("int kernel(")[0] + "int kernel("
    path.write_text(f"{start}{head}{brace} if (dim) return 0; {body}")
    manifest["operators"] = [entry]
    write_manifest(copy, manifest)
    seal(copy, {})
    assert main(["verify", str(copy), "--core", str(min(os.sched_getaffinity(0)))]) == 1
    out = capsys.readouterr().out
    assert f"FAIL  {entry['name']}: not_written" in out


def test_a_packaged_binary_is_held_to_its_instruction_sets(copy: Path) -> None:
    """`package_candidate` passes what the manifest claims, and the judge looks for each."""
    manifest = read_manifest(copy)
    assert package_candidate(copy).claims == tuple(manifest["isa"])
    claims.check(copy / LIBRARY, package_candidate(copy).claims)
    write_manifest(copy, {**manifest, "isa": [*manifest["isa"], "amx_int8"]})
    with pytest.raises(Refusal, match="claims amx_int8"):
        claims.check(copy / LIBRARY, package_candidate(copy).claims)
