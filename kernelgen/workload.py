"""Real traffic for a text encoder: English sentences that every Python installation carries, and
their token ids.

In: the standard library's docstrings, a tokenizer file. Out: sentences; int64 id arrays of natural
lengths; `.npz` sample files.
Never here: padding, random text.
"""

from __future__ import annotations

import ast
import hashlib
import io
import itertools
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_MIN_WORDS, _MAX_WORDS = 3, 90
_BREAK = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_CODE = re.compile(r">>>|[{}\\|<>=]|::|__|\.\.\.|^\W|\w\(")


def docstring_sentences(limit: int | None = None) -> list[str]:
    """English sentences from the standard library's docstrings: no repeats, prose only, 3 to 90
    words.

    The order depends on the Python version alone: modules by name, docstrings by line. Modules are
    read, never imported.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit: got {limit}, wanted a count or None")
    seen: dict[str, None] = {}
    for text in _docstrings(Path(sysconfig.get_path("stdlib"))):
        for sentence in _sentences(text):
            if limit is not None and len(seen) >= limit:
                return list(seen)
            seen.setdefault(sentence)
    return list(seen)


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def _sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        # An indented line inside a paragraph is a table, a list or code, not prose.
        if re.search(r"^\s+\S", paragraph, re.MULTILINE):
            continue
        for sentence in _BREAK.split(" ".join(paragraph.split())):
            words = sentence.split()
            prose = sentence.isascii() and sentence[:1].isupper() and sentence[-1:] in ".!?"
            if prose and _MIN_WORDS <= len(words) <= _MAX_WORDS and not _CODE.search(sentence):
                yield sentence


def tokenize(sentences: Sequence[str], tokenizer_json: Path, max_tokens: int = 128) -> list[Ids]:
    """Token ids with [CLS] and [SEP], int64, one array per sentence, cut at `max_tokens`, never
    padded. Raises ValueError for a file that is no tokenizer.
    """
    if max_tokens < 3:
        raise ValueError(f"max_tokens: got {max_tokens}, wanted at least 3 ([CLS], a token, [SEP])")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_json))
    except Exception as error:  # The library raises no narrower class for a file it cannot read.
        raise ValueError(
            f"tokenizer: {tokenizer_json}: wanted a tokenizer.json ({error})"
        ) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    return [np.array(found.ids, np.int64) for found in tokenizer.encode_batch(list(sentences))]


def save_samples(path: Path, ids: Sequence[Ids]) -> str:
    """Write `ids` (concatenated) and `offsets` (n + 1) to a `.npz` file; returns the file's
    SHA-256.

    The same samples give the same bytes: numpy stamps no time into a `.npz`.
    """
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(one) for one in ids], out=offsets[1:])
    joined = np.concatenate([np.zeros(0, np.int64), *ids]).astype(np.int64)
    stream = io.BytesIO()
    np.savez(stream, ids=joined, offsets=offsets)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.getvalue())
    return hashlib.sha256(stream.getvalue()).hexdigest()


def load_samples(path: Path) -> list[Ids]:
    """Read what `save_samples` wrote. Raises `ValueError` naming the array that is missing or does
    not fit.
    """
    with np.load(path, allow_pickle=False) as data:
        for name in ("ids", "offsets"):
            if name not in data or data[name].dtype != np.int64 or data[name].ndim != 1:
                raise ValueError(f"{path}: wanted an int64 vector {name!r}, got {sorted(data)}")
        ids, offsets = data["ids"], data["offsets"]
    sound = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(ids)
    if not sound or (np.diff(offsets) < 1).any():
        raise ValueError(f"{path}: offsets do not cut {len(ids)} ids into non-empty samples")
    return [ids[begin:end] for begin, end in itertools.pairwise(offsets)]


def length_histogram(ids: Sequence[Ids]) -> dict[int, int]:
    """How many samples have each length in tokens, shortest first."""
    return dict(sorted(Counter(len(one) for one in ids).items()))
