"""The shape every system under test of one task has, stock runtime, endpoint or our own kernels.

In: a :class:`SutSpec` and a model file. Out: a :class:`System` that turns token ids into sentence
embeddings, a :class:`Recogniser` that turns images of lines into their text, or a
:class:`Generator` that goes on from a prompt. None of them ever sees LoadGen, a response id or a
clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]
Embeddings = npt.NDArray[np.float32]
Image = npt.NDArray[np.float32]


class StackError(RuntimeError):
    """A stack that cannot be opened here; the message says why and what to do."""


@dataclass(frozen=True)
class StackInfo:
    """What discovery found: ``digest`` names the exact build, ``reason`` why it is unavailable."""

    name: str
    version: str
    digest: str
    available: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "available": self.available,
            "reason": self.reason,
        }


class System(Protocol):
    """One loaded instance, used by one thread at a time."""

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        """Embeddings (n, d) float32 of n token-id vectors (int64, 1-D), in the order given."""
        ...

    def close(self) -> None: ...


class Recogniser(Protocol):
    """One loaded instance of the task ``text_recognition``, used by one thread at a time."""

    def infer(self, batch: Sequence[Image]) -> Sequence[str]:
        """The text of n images (float32, (3, H, W), W may differ), in the order given.

        The empty text is an answer. Padding of the images to one width is the system's own work.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class GenerationLimit:
    """Where an answer ends: after ``max_new_tokens``, or with ``end_token``, which belongs to it.

    ``end_token`` None: the answer goes on to ``max_new_tokens``, whatever the model says.
    """

    max_new_tokens: int
    end_token: int | None = None


class Generator(Protocol):
    """One loaded instance of the task ``generation``, used by one thread at a time.

    Decoding is greedy: the same prompt has the same answer, alone or in a batch.
    """

    def generate(
        self, batch: Sequence[TokenIds], limit: GenerationLimit
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """(position in ``batch``, its next token ids) as soon as they are there.

        The first yield for a position is its first token, and its time is the time to first token:
        yield it before computing the second. Later yields may bring several tokens. Positions may
        come in any order; all are answered when the iterator ends. Nothing follows the end token,
        no padding either. One step must not be held back until the next is asked for.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class OutputPort:
    """One output of a loaded model: its names, its rank, and whether it is float32."""

    names: tuple[str, ...]
    rank: int
    float32: bool


def choose_output(ports: Sequence[OutputPort], wanted: str) -> int:
    """Index of the output called ``wanted``; when empty, of the only float32 one of rank two.

    Sentence embeddings (n, d) are that one in an encoder that also returns token states (n, s, d)
    or echoes its integer inputs. Raises StackError when there is no such output, or more than one.
    """
    if wanted:
        found = [place for place, port in enumerate(ports) if wanted in port.names]
    else:
        found = [place for place, port in enumerate(ports) if port.float32 and port.rank == 2]
    if len(found) != 1:
        names = [name for port in ports for name in port.names]
        raise StackError(
            f"output: got {wanted or 'no name'!r}, which fits {len(found)} outputs; "
            f"the model has {names}"
        )
    return found[0]


def pad(batch: Sequence[TokenIds]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """``input_ids`` and ``attention_mask``, both int64 (n, longest), zero beyond each length."""
    lengths = np.fromiter((len(ids) for ids in batch), dtype=np.int64, count=len(batch))
    mask = np.arange(int(lengths.max()), dtype=np.int64)[None, :] < lengths[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = np.concatenate(batch)
    return ids, mask.astype(np.int64)
