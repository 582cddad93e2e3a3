"""One conversation with one harness process: set sizes, call with guard pages, run timed batches.

In: a shared object and two memory files. Out: raw output bytes, outside clock readings, or a
`Refusal`.
Never here: the oracle, what outputs should be, whether a time is good. Every answer must repeat a
fresh nonce; numbers inside answers only help to explain a failure.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from kernelgen.judge import sandbox
from kernelgen.judge.build import harness
from kernelgen.judge.verdict import JudgeError
from kernelgen.ops.operator import Operator, Role

ADDRESS_SPACE_BYTES = 12 << 30
CPU_LIMIT_S = 300
ALIGNMENT = 64

_SETUP, _CALL, _LOAD, _GO, _EXIT = 1, 2, 3, 4, 5
_HEADER = struct.Struct("<IIQ")
_ANSWER = struct.Struct("<Q5q")
_KINDS = ("input", "output", "weight", "packed data", "scratch", "shared input")
_READ_ONLY_KINDS = (0, 2, 3, 5)


class Refusal(Exception):
    """The candidate failed; `reason` is one of `verdict.REASONS`, `detail` is for people and for
    repair.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Region:
    """A memory file shared with the child, handed out in pieces at changing addresses."""

    def __init__(self, size: int) -> None:
        self.size = max(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.PAGESIZE)
        self.descriptor = os.memfd_create("kernelgen")
        os.ftruncate(self.descriptor, self.size)
        self._map = mmap.mmap(self.descriptor, self.size)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        self._next = 0

    def read_only_descriptor(self) -> int:
        """A second descriptor through which nobody can map the file for writing; the caller closes
        it.
        """
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY)

    def rewind(self, jitter: int = 0) -> None:
        """Forget all pieces; the next one starts `jitter` alignments from the beginning."""
        self._next = jitter * ALIGNMENT

    def take(self, size: int) -> int:
        """Offset of a fresh piece of `size` bytes."""
        at = self._next
        if at + size > self.size:
            raise JudgeError(f"shared memory: wanted {at + size} bytes, have {self.size}")
        self._next = -(-(at + size) // ALIGNMENT) * ALIGNMENT
        return at

    def put(self, array: npt.NDArray[np.generic]) -> int:
        """Copy `array` into a fresh piece and return its offset."""
        at = self.take(array.nbytes)
        self.write(at, array)
        return at

    def write(self, at: int, array: npt.NDArray[np.generic]) -> None:
        """Copy `array` to offset `at`."""
        data = np.ascontiguousarray(array)
        self.bytes[at : at + data.nbytes] = data.reshape(-1).view(np.uint8)

    def get(self, at: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.generic]:
        """A copy of what lies at `at` now."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return self.bytes[at : at + size].copy().view(dtype).reshape(shape)

    def close(self) -> None:
        del self.bytes
        with suppress(BufferError):  # while a caller still looks at a piece, it goes with the view
            self._map.close()
        os.close(self.descriptor)


@dataclass(frozen=True)
class SetupResult:
    """What `prepare` took and asked for; sizes are the candidate's own words."""

    prepare_ns: int
    packed_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Window:
    """One timed batch seen from outside: wall and CPU time from order to answer, and the CPU time
    used between the answer and the moment the child stood still (next to none for an honest one).
    """

    wall_ns: int
    cpu_ns: int | None
    after_ns: int


class Session:
    """A harness process around one candidate. Use as a context manager; any method may raise
    `Refusal`.
    """

    def __init__(
        self,
        library: Path,
        operator: Operator,
        inputs: Region,
        outputs: Region,
        *,
        core: int | None,
        limit_s: float,
        sanitize: bool = False,
    ) -> None:
        self._operator = operator
        self._limit_s = limit_s
        self.inputs = inputs
        self.outputs = outputs
        self._frozen = False
        command_read, self._command = os.pipe()
        self._answers, answer_write = os.pipe()
        read_only = inputs.read_only_descriptor()
        ends = (command_read, answer_write, read_only, outputs.descriptor)
        numbers = [str(number) for number in ends]
        limits = [str(-1 if core is None else core), str(ADDRESS_SPACE_BYTES), str(CPU_LIMIT_S)]
        try:
            self._child = sandbox.start(
                harness(sanitize=sanitize),
                ["/run/kernel.so", *numbers, *limits],
                read_only={library: "/run/kernel.so"},
                descriptors=ends,
                with_proc=sanitize,
            )
        except BaseException:
            os.close(self._command)
            os.close(self._answers)
            raise
        finally:
            for number in (command_read, answer_write, read_only):
                os.close(number)

    def __enter__(self) -> Session:
        try:
            self._answer(0, 10.0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, whatever state it is in."""
        self._child.kill()
        for number in (self._command, self._answers):
            if number >= 0:
                os.close(number)
        self._command = self._answers = -1

    def setup(
        self, dims: Mapping[str, int], weight_offsets: Sequence[int], *, left: bool = False
    ) -> SetupResult:
        """Fix the sizes, pack the weights that lie at `weight_offsets` in the input region."""
        operator = self._operator
        payload = [len(operator.dims), *(dims[name] for name in operator.dims)]
        for role in ("input", "output"):
            tensors = operator.by_role("input" if role == "input" else "output")
            payload.append(len(tensors))
            for tensor in tensors:
                payload += [
                    _size(tensor.sizes(dims), tensor.dtype),
                    np.dtype(tensor.dtype).itemsize,
                ]
        weights = operator.by_role("weight")
        payload.append(len(weights))
        for tensor, at in zip(weights, weight_offsets, strict=True):
            payload += [_size(tensor.sizes(dims), tensor.dtype), at]
        began = time.perf_counter_ns()
        values = self._order(_SETUP, [*payload, int(left)])
        return SetupResult(time.perf_counter_ns() - began, values[1], values[2])

    def call(self, inputs: Sequence[int], outputs: Sequence[int], *, left: bool) -> None:
        """One call with guarded copies of these pieces; outputs come back to their places."""
        self._order(_CALL, [int(left), *inputs, *outputs])

    def load(self, calls: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Tell the child which pieces the next batches work on, then hold it still: what the caller
        writes there afterwards is seen when the clock runs and not before.
        """
        payload = [len(calls)]
        for inputs, outputs in calls:
            payload += [*inputs, *outputs]
        self._order(_LOAD, payload)
        self._freeze()

    def go(self, first: int, calls: int) -> Window:
        """Run `calls` of the loaded ones from `first` on; the clock here is ours and covers release
        to answer. Afterwards the child is held still again, so that outputs are as they were when
        it claimed to be done.
        """
        nonce = _nonce()
        message = _HEADER.pack(_GO, 2, nonce) + struct.pack("<2q", first, calls)
        cpu = self._child.cpu_ns()
        self._write(message)
        began = time.perf_counter_ns()
        self._thaw()
        self._answer(nonce, self._limit_s)
        wall = time.perf_counter_ns() - began
        answered = self._child.cpu_ns()
        self._freeze()
        if cpu is None or answered is None:
            return Window(wall, None, 0)
        return Window(wall, answered - cpu, (self._child.cpu_ns() or answered) - answered)

    def _freeze(self) -> None:
        try:
            self._child.freeze()
        except RuntimeError as error:
            raise JudgeError(str(error)) from error
        self._frozen = True

    def _thaw(self) -> None:
        if self._frozen:
            self._child.thaw()
            self._frozen = False

    def finish(self) -> None:
        """Ask the child to end; it must answer once more and exit with 0."""
        self._order(_EXIT, [])
        if self._child.wait(5.0) != 0:
            raise Refusal("ended_early", f"exit after the last answer. {self._child.text()[:2000]}")

    def _order(self, op: int, payload: Sequence[int]) -> tuple[int, ...]:
        nonce = _nonce()
        body = struct.pack(f"<{len(payload)}q", *payload)
        self._send(_HEADER.pack(op, len(payload), nonce) + body)
        return self._answer(nonce, self._limit_s)

    def _send(self, message: bytes) -> None:
        self._thaw()
        self._write(message)

    def _write(self, message: bytes) -> None:
        try:
            while message:
                message = message[os.write(self._command, message) :]
        except BrokenPipeError:
            raise self._ended() from None

    def _answer(self, nonce: int, limit_s: float) -> tuple[int, ...]:
        data = b""
        deadline = time.monotonic() + limit_s
        while len(data) < _ANSWER.size:
            left = deadline - time.monotonic()
            ready = select.select([self._answers], [], [], left)[0] if left > 0 else []
            if not ready:
                raise Refusal("time_limit", f"no answer within {limit_s:g} s")
            chunk = os.read(self._answers, _ANSWER.size - len(data))
            if not chunk:
                raise self._ended()
            data += chunk
        got, status, *values = _ANSWER.unpack(data)
        if got != nonce:
            raise Refusal("handshake", "an answer that does not repeat the nonce")
        if status != 0:
            raise _explain(status, values, self._child)
        return tuple(values)

    def _ended(self) -> Refusal:
        code = self._child.wait(2.0)
        text = self._child.text()[:4000]
        if code is None:
            return Refusal("ended_early", f"closed its pipe and lived on. {text}")
        if code == -signal.SIGSYS:
            return Refusal("forbidden_syscall", "killed by the system call filter")
        if code == -signal.SIGXCPU:
            return Refusal("time_limit", f"used {CPU_LIMIT_S} s of CPU time")
        if "AddressSanitizer" in text or "runtime error" in text:
            return Refusal("sanitizer", text)
        if code < 0:
            return Refusal("crashed", f"signal {signal.Signals(-code).name}. {text}")
        return Refusal("ended_early", f"exit code {code} before an answer. {text}")


def _explain(status: int, values: Sequence[int], child: sandbox.Child) -> Refusal:
    if status > 1000:
        kind, index, offset, size = values
        name = signal.Signals(status - 1000).name if status - 1000 in set(signal.Signals) else "?"
        if not 0 <= kind < len(_KINDS):
            return Refusal("crashed", f"{name} at an address outside every buffer")
        where = f"{name} at byte {offset} of {_KINDS[kind]} {index} ({size} bytes)"
        if 0 <= offset < size and kind in _READ_ONLY_KINDS:
            return Refusal("input_written", where)
        return Refusal("out_of_bounds", where)
    if status == 1:
        return Refusal("returned_error", f"code {values[0]}")
    if status == 2:
        which = f"argument {values[1]}" if values[1] >= 0 else "packed data or scratch"
        return Refusal("out_of_bounds", f"bytes beside {which} are overwritten")
    if status == 3:
        return Refusal("too_large", f"packed {values[0]} bytes, scratch {values[1]} bytes")
    if status == 4:
        return Refusal("too_large", "no memory for the buffers inside the address space limit")
    if status == 7:
        return Refusal(
            "state_changed", "rounding mode, denormals, exception masks or string direction"
        )
    if status == 6:
        return Refusal("not_loadable", child.text()[:2000])
    # Nothing else is ever sent by an intact harness, so the candidate has written over it.
    return Refusal("handshake", f"unknown status {status}")


def _nonce() -> int:
    return secrets.randbits(63) | 1


def _size(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def bytes_for(operator: Operator, dims: Mapping[str, int], roles: Sequence[Role]) -> int:
    """Room the tensors of these roles need in a region, alignment included."""
    total = 0
    for role in roles:
        for tensor in operator.by_role(role):
            total += -(-_size(tensor.sizes(dims), tensor.dtype) // ALIGNMENT) * ALIGNMENT
    return total
