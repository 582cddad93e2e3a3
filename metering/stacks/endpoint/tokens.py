"""The tokenizer of a language model, for a system that speaks text.

In: a model file: ``tokenizer.json``, or a GGUF file, whose vocabulary llama-cpp-python reads. Out:
ids of a text and text of ids. An endpoint's own token count is a claim; this is what it is held to.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from metering.stacks.system import StackError


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]:
        """Ids of a text, no special tokens added."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


class JsonTokenizer:
    """A ``tokenizer.json`` of the library ``tokenizers``."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Loaded

        try:
            self._loaded: Any = Loaded.from_file(str(path))
        except Exception as error:  # The library raises plain Exception for a file it cannot read.
            raise StackError(f"model: {path.name} is no tokenizer.json ({error})") from error

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in self._loaded.encode(text, add_special_tokens=False).ids]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._loaded.decode([int(number) for number in ids]))


class GgufTokenizer:
    """The vocabulary of a GGUF file; its weights are not read."""

    def __init__(self, path: Path) -> None:
        try:
            llama_cpp: Any = importlib.import_module("llama_cpp")
        except ImportError as error:
            raise StackError(
                f"model: {path.name} needs llama-cpp-python: pip install 'ignition[llama]'"
            ) from error
        self._loaded = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    def encode(self, text: str) -> list[int]:
        found = self._loaded.tokenize(text.encode(), add_bos=False, special=False)
        return [int(number) for number in found]

    def decode(self, ids: Sequence[int]) -> str:
        numbers = [int(number) for number in ids]
        return bytes(self._loaded.detokenize(numbers)).decode("utf-8", "replace")


def open_tokenizer(path: Path) -> Tokenizer:
    """Raises StackError."""
    return GgufTokenizer(path) if path.suffix == ".gguf" else JsonTokenizer(path)
