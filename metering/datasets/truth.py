"""The known texts of a library as a document of its own, so that evidence can be scored without it.

In: a query sample library whose right answers are known. Out: ``truth.json`` in an evidence folder:
the texts in library order and the digest of the library they belong to. The pictures stay where
they are; who has the library compares with :func:`truth_of`.
Never here: a text that a system read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from metering.loadgen.files import sha256_file, write_json
from metering.loadgen.library import LibraryError, load_texts
from metering.loadgen.verify import EvidenceError

TRUTH = "truth.json"
SCHEMA = "ignition.truth.v1"


@dataclass(frozen=True)
class Truth:
    """``texts[i]`` is what line i of the library with digest ``samples_sha256`` says."""

    samples_sha256: str
    texts: tuple[str, ...]


def truth_of(library: Path) -> Truth:
    """The truth in a library. Raises LibraryError where it holds none."""
    texts = load_texts(library)
    if not any(texts):
        raise LibraryError(f"samples: {library.name} knows no text of any line")
    return Truth(sha256_file(library), tuple(texts))


def keep_truth(library: Path, folder: Path) -> str:
    """Write ``truth.json`` into ``folder``; returns its SHA-256. Raises LibraryError."""
    truth = truth_of(library)
    document = {
        "schema": SCHEMA,
        "samples_sha256": truth.samples_sha256,
        "texts": list(truth.texts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return write_json(folder / TRUTH, document)


def read_truth(folder: Path) -> Truth:
    """Inverse of :func:`keep_truth`. Raises EvidenceError."""
    where = f"{folder.name}/{TRUTH}"
    try:
        data = json.loads((folder / TRUTH).read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{where}: cannot be read ({error})") from error
    texts = data.get("texts") if isinstance(data, dict) else None
    if (
        not isinstance(texts, list)
        or data.get("schema") != SCHEMA
        or not isinstance(data.get("samples_sha256"), str)
        or not all(isinstance(text, str) for text in texts)
        or not any(texts)
    ):
        raise EvidenceError(f"{where}: not a document of schema {SCHEMA} with texts")
    return Truth(data["samples_sha256"], tuple(texts))
