"""llama.cpp as a stack, and its server as an endpoint, with a real small language model.

It is an optional extra that compiles for minutes. Where it is installed, SmolLM2 answers through
LoadGen, in process and over HTTP; where it is not, each way says what to install.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelgen import zoo
from metering import loadgen, stacks
from metering.loadgen import RunSpec, SutSpec, verdict
from metering.loadgen.library import load_library, write_library
from metering.stacks import GenerationLimit, StackError, llama_cpp
from metering.stacks.endpoint.tokens import open_tokenizer
from tests.conftest import MODEL_CACHE
from tests.metering.measure.endpoint_servers import register

HERE = llama_cpp.discover().available
MODEL, LIMIT, END = "smollm2-135m", 12, 2  # <|im_end|> of SmolLM2 is token 2.
NAME = "smollm2"
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Say hello.")
PATIENT = {"stall_limit_s": 120.0, "wall_limit_s": 240.0}
INSTALL = r"pip install 'ignition\[llama\]'"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights; without the library that reads them an empty file of that name will do."""
    if HERE:
        return zoo.fetch(MODEL, MODEL_CACHE)
    path = tmp_path_factory.mktemp("model") / "absent.gguf"
    path.touch()
    return path


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def prompts(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Token ids of whole chats for the library, of bare questions for a server with a template."""
    folder = tmp_path_factory.mktemp("prompts")
    if HERE:
        library = importlib.import_module("llama_cpp")
        vocabulary = library.Llama(str(model), vocab_only=True, verbose=False)
        whole = [
            np.array(vocabulary.tokenize(chat(text).encode(), add_bos=False, special=True))
            for text in QUESTIONS
        ]
        bare = [np.array(open_tokenizer(model).encode(text)) for text in QUESTIONS]
    else:
        whole = bare = [np.array([1, 2, 3])]
    write_library(folder / "whole.npz", whole)
    write_library(folder / "bare.npz", bare)
    return folder / "whole.npz", folder / "bare.npz"


@pytest.fixture
def generating(make_spec: Callable[..., RunSpec], model: Path) -> Callable[..., RunSpec]:
    def make(sut: dict[str, Any], samples: Path, **fields: Any) -> RunSpec:
        return make_spec(
            {"graph_optimization": "default", "batch": 1, "precision": "as_stored", **sut},
            model=str(model),
            samples=str(samples),
            task="generation",
            max_new_tokens=LIMIT,
            end_token=END,
            min_query_count=len(QUESTIONS),
            warmup_ms=0,
            **PATIENT,
            **fields,
        )

    return make


@pytest.mark.slow
def test_a_language_model_answers_through_loadgen(
    generating: Callable[..., RunSpec], model: Path, prompts: tuple[Path, Path], tmp_path: Path
) -> None:
    spec = generating({"stack": "llama.cpp"}, prompts[0], mode="accuracy")
    if not HERE:
        with pytest.raises(StackError, match=INSTALL):
            loadgen.run(spec, tmp_path / "run")
        return
    result = loadgen.run(spec, tmp_path / "run")
    assert result.state == "VALID", result.reasons
    answers = verdict.accuracy_tokens((tmp_path / "run" / verdict.ACCURACY).read_bytes())
    texts = [open_tokenizer(model).decode(answer) for answer in answers]
    assert "Paris" in texts[0]
    # Greedy and without memory: the same question has the same answer, whatever was asked between.
    system = stacks.open_generator(spec.sut, model, "")
    library = load_library(prompts[0])
    limit = GenerationLimit(LIMIT, END)
    for question in (0, 1, 0):
        steps = list(system.generate([library[question]], limit))
        assert [token for _, tokens in steps for token in tokens] == answers[question]
        assert all(len(tokens) == 1 for _, tokens in steps)
    system.close()


@contextlib.contextmanager
def llama_server(model: Path, folder: Path) -> Iterator[str]:
    """The server that llama-cpp-python ships, on a free port, until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model)]
    command += ["--model_alias", NAME, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--n_ctx", "1024", "--n_threads", "1", "--n_threads_batch", "1"]
    # The file carries no template that this server reads; SmolLM2 was taught this one.
    command += ["--chat_format", "chatml"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + 180
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                ended = process.poll()
                assert ended is None, (folder / "server.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "the server never answered"
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
def test_its_server_is_an_endpoint_like_any_other(
    generating: Callable[..., RunSpec], model: Path, prompts: tuple[Path, Path], tmp_path: Path
) -> None:
    if not HERE:
        with pytest.raises(StackError, match=INSTALL):
            open_tokenizer(model)
        return
    limits = {"read_s": 60, "request_s": 120}
    with llama_server(model, tmp_path) as address:
        folder = register(tmp_path / "endpoint", address, "openai-chat", NAME, limits=limits)
        sut = {"stack": "openai", "package": folder}
        checked = loadgen.run(generating(sut, prompts[1], mode="accuracy"), tmp_path / "run")
        assert checked.state == "VALID", checked.reasons
        timed = loadgen.run(generating(sut, prompts[1]), tmp_path / "timed")
    answers = verdict.accuracy_tokens((tmp_path / "run" / verdict.ACCURACY).read_bytes())
    assert "Paris" in open_tokenizer(model).decode(answers[0])
    assert timed.state == "VALID", timed.reasons
    assert timed.samples_per_second is not None


def test_what_llama_cpp_cannot_do_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no embeddings here"):
        stacks.open_system(SutSpec("llama.cpp"), model, "")
    if not HERE:
        return
    with pytest.raises(StackError, match="wanted as_stored"):
        stacks.open_generator(SutSpec("llama.cpp"), model, "")
    sut = SutSpec("llama.cpp", precision="as_stored")
    with pytest.raises(StackError, match=r"wanted a \.gguf"):
        stacks.open_generator(sut, tmp_path / "model.onnx", "")
