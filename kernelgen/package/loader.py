"""A package as a callable model: checked, loaded once, run over ragged token sequences.

In: a package directory; then lists of token ids. Out: embeddings. One instance serves one thread.
Never here: tokenising, padding, any fallback: what fails a check is refused.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelgen.emit.part import BAD_ID, BAD_LENGTH, ERRORS
from kernelgen.machine import allow_tiles, describe
from kernelgen.package.manifest import (
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    PackageError,
)
from kernelgen.package.native import Block, Native


class Room:
    """Everything a call passes to the kernel, boxed once, for at most `sequences` sequences and
    `tokens` tokens.

    After a call the weights have swept the caches, so every Python object that the next call
    touches comes from memory: copying a few ids into this room costs less than asking new arrays
    for their addresses.
    """

    def __init__(
        self, sequences: int, tokens: int, hidden: int, weights: Block, scratch: Block
    ) -> None:
        self.sequences, self.tokens = sequences, tokens
        self.ids = np.zeros(tokens, np.int64)
        self.offsets = (ctypes.c_int64 * (sequences + 1))()
        self.dims = (ctypes.c_int64 * 2)()
        self.out = np.empty((sequences, hidden), np.float32)
        self._in = (ctypes.c_void_p * 2)(self.ids.ctypes.data, ctypes.addressof(self.offsets))
        self._results = (ctypes.c_void_p * 1)(self.out.ctypes.data)
        # Held here because the kernel knows them by address alone.
        self._held = (weights, scratch)
        self.arguments = tuple(
            ctypes.c_void_p(address)
            for address in (
                ctypes.addressof(self._in),
                ctypes.addressof(self._results),
                ctypes.addressof(self.dims),
                weights.address,
                scratch.address,
            )
        )


class CompiledModel:
    """A text encoder compiled for this machine. `run` may be called from one thread at a time."""

    def __init__(self, package: Path, manifest: Mapping[str, Any]) -> None:
        """`manifest` as `judge.package.inspect` gave it. Raises `PackageError` when this machine
        lacks an instruction set it needs.
        """
        self.manifest = manifest
        check_isa(manifest)
        model = self.manifest["model"]
        self.hidden = int(model["hidden"])
        self._vocabulary, self._max_tokens = int(model["vocabulary"]), int(model["max_tokens"])
        if "amx_tile" in self.manifest["isa"] and not allow_tiles():
            raise PackageError("package needs the matrix unit (amx_tile), the system refuses it")
        self._native = Native(package / LIBRARY)
        self._weights = _read_block(package / WEIGHTS, self._native.packed_bytes((1, 1)))
        self._room: Room | None = None
        self._open = True

    def run(self, token_ids: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Embeddings, float32 [n, hidden], of n sequences of token ids (1-D integers, lengths free,
        no padding).

        Raises `ValueError` naming the sequence that is empty, too long or holds an unknown id.
        """
        if not self._open:
            raise PackageError("this model is closed; load the package again")
        n = len(token_ids)
        if n == 0:
            return np.empty((0, self.hidden), np.float32)
        ends = list(itertools.accumulate(map(len, token_ids)))
        tokens = ends[-1]
        room = self._room
        if room is None or n > room.sequences or tokens > room.tokens:
            room = self._room = self._room_for(n, tokens, room)
        try:
            np.concatenate(token_ids, out=room.ids[:tokens], casting="same_kind")
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"token_ids: got {_kinds(token_ids)}, wanted 1-D arrays of integers"
            ) from error
        room.offsets[1 : n + 1] = [*ends]
        room.dims[0], room.dims[1] = n, tokens
        rc = self._native.kernel(*room.arguments)
        if rc != 0:
            raise ValueError(self._explain(rc, token_ids))
        return room.out[:n].copy()

    def _room_for(self, n: int, tokens: int, before: Room | None) -> Room:
        """Memory for `n` sequences of `tokens` in all, and for whatever fitted before."""
        if before is not None:
            n, tokens = max(n, before.sequences), max(tokens, before.tokens)
        # Fewer sequences can mean a longer one: n counts as 1, the most any n can need.
        scratch = Block(self._native.scratch_bytes((1, tokens)))
        return Room(n, tokens, self.hidden, self._weights, scratch)

    def _explain(self, rc: int, token_ids: Sequence[npt.NDArray[np.int64]]) -> str:
        text = ERRORS.get(rc, f"kernel returned {rc}")
        for place, ids in enumerate(token_ids):
            if len(ids) == 0:
                return f"token_ids[{place}]: empty, wanted at least one token"
            if rc == BAD_LENGTH and len(ids) > self._max_tokens:
                return f"token_ids[{place}]: {len(ids)} tokens, wanted at most {self._max_tokens}"
            if rc == BAD_ID and (min(ids) < 0 or max(ids) >= self._vocabulary):
                return f"token_ids[{place}]: ids outside 0..{self._vocabulary - 1}"
        return f"token_ids: {text}"

    def close(self) -> None:
        """Let go of weights and scratch. The library itself stays mapped until the process ends."""
        self._open = False
        self._room = None
        self._weights = Block(0)

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _kinds(token_ids: Sequence[object]) -> str:
    """Kind and shape of the first few, for an error message."""
    seen = [np.asarray(one) for one in token_ids[:4]]
    return ", ".join(f"{one.dtype}{list(one.shape)}" for one in seen)


def load(package: Path, *, claimed: bool = False) -> CompiledModel:
    """The package at `package`, checked and ready to run. Raises `PackageError`.

    Everything that can be seen without running it is looked at first, as a stranger's: digests bind
    files to a manifest and say nothing about who made both. `claimed` also looks for the
    instruction sets in its code; that protects nobody who runs it, and needs objdump.
    """
    from kernelgen.judge.package import inspect
    from kernelgen.judge.session import Refusal

    if not os.path.lexists(package / MANIFEST):
        raise PackageError(f"{package / MANIFEST}: no such file, wanted a kernel package directory")
    try:
        manifest = inspect(package, claimed=claimed)
    except Refusal as refusal:
        raise PackageError(f"{package}: {refusal.detail}") from refusal
    return CompiledModel(package, manifest)


def check_isa(manifest: Mapping[str, Any]) -> None:
    """Refuse a package whose instructions this machine does not have, before any of them runs."""
    machine = describe(measure=False)
    if manifest.get("architecture") != machine.architecture:
        raise PackageError(
            f"package is for {manifest.get('architecture')!r}, wanted {machine.architecture!r}"
        )
    lacking = sorted(set(manifest.get("isa", ())) - set(machine.isa))
    if lacking:
        raise PackageError(
            f"package needs {', '.join(lacking)}, this machine has {', '.join(machine.isa)};"
            " tune again here"
        )


def _read_block(path: Path, wanted: int) -> Block:
    size = path.stat().st_size
    if size != wanted:
        raise PackageError(f"{path}: got {size} bytes, the library wants {wanted}")
    block = Block(size)
    with path.open("rb") as stream:
        got = stream.readinto(block.bytes.data)
    if got != size:
        raise PackageError(f"{path}: got {got} bytes, wanted {size}")
    return block
