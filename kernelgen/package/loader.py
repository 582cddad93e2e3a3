"""A package as a callable model: checked, loaded once, run over ragged token sequences.

In: a package directory; then lists of token ids. Out: embeddings. One instance serves one thread.
Never here: tokenising, padding, any fallback: what fails a check is refused.
"""

from __future__ import annotations

import ctypes
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
    WEIGHTS,
    PackageError,
    check_files,
    read_manifest,
)
from kernelgen.package.native import Block, Native


class CompiledModel:
    """A text encoder compiled for this machine. `run` may be called from one thread at a time."""

    def __init__(self, package: Path) -> None:
        """Raises `PackageError` when a digest differs or this machine lacks an instruction set the
        package needs.
        """
        self.manifest: Mapping[str, Any] = read_manifest(package)
        check_isa(self.manifest)
        check_files(package, self.manifest)
        model = self.manifest["model"]
        self.hidden = int(model["hidden"])
        self._vocabulary, self._max_tokens = int(model["vocabulary"]), int(model["max_tokens"])
        if "amx_tile" in self.manifest["isa"] and not allow_tiles():
            raise PackageError("package needs the matrix unit (amx_tile), the system refuses it")
        self._native = Native(package / LIBRARY)
        self._weights = _read_block(package / WEIGHTS, self._native.packed_bytes((1, 1)))
        self._in = (ctypes.c_void_p * 2)()
        self._out = (ctypes.c_void_p * 1)()
        self._dims = np.zeros(2, np.int64)
        self._in_at, self._out_at = ctypes.addressof(self._in), ctypes.addressof(self._out)
        self._dims_at = int(self._dims.ctypes.data)
        self._scratch: Block | None = None
        self._room = (0, 0)
        self._open = True

    def run(self, token_ids: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Embeddings, float32 [n, hidden], of n sequences of token ids (1-D integers, lengths free,
        no padding).

        Raises `ValueError` naming the sequence that is empty, too long or holds an unknown id.
        """
        if not self._open:
            raise PackageError("this model is closed; load the package again")
        n = len(token_ids)
        out = np.empty((n, self.hidden), np.float32)
        if n == 0:
            return out
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum([len(ids) for ids in token_ids], out=offsets[1:])
        ids = np.concatenate(token_ids).astype(np.int64, copy=False)
        tokens = int(offsets[n])
        if ids.ndim != 1 or len(ids) != tokens:
            raise ValueError(f"token_ids: got shape {ids.shape}, wanted 1-D arrays of token ids")
        scratch = self._scratch_for(n, tokens)
        self._in[0], self._in[1] = ids.ctypes.data, offsets.ctypes.data
        self._out[0] = out.ctypes.data
        self._dims[0], self._dims[1] = n, tokens
        rc = self._native.kernel(
            self._in_at, self._out_at, self._dims_at, self._weights.address, scratch.address
        )
        if rc != 0:
            raise ValueError(self._explain(rc, token_ids))
        return out

    def _scratch_for(self, n: int, tokens: int) -> Block:
        """Scratch grows with the token count; it is kept, so only a new record length allocates."""
        # Fewer sequences can mean a longer one: n counts as 1, the most any n can need.
        if self._scratch is None or tokens > self._room[1]:
            self._scratch = Block(self._native.scratch_bytes((1, tokens)))
            self._room = (1, tokens)
        return self._scratch

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
        self._scratch = None
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


def load(package: Path) -> CompiledModel:
    """The package at `package`, checked and ready to run. Raises `PackageError`."""
    return CompiledModel(package)


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
