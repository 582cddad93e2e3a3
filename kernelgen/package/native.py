"""One shared object with the judged interface, called through ctypes with integer pointers.

In: the path of a compiled kernel. Out: sizes, packing and calls over memory the caller owns. A call
releases the interpreter lock.
Never here: trust; whoever loads a library has checked its digest or built it himself.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

HUGE_PAGE = 2 << 20


class Block:
    """Zeroed memory that begins on a huge-page boundary and asks for huge pages, for weights and
    scratch.

    Weights are streamed once per call: with 4 KiB pages a good part of the time goes into address
    translation.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, max(size, 1) + HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                # A kernel built without transparent huge pages says EINVAL; ordinary pages serve
                # too.
                self.huge = False
            else:
                self.huge = True
        self._base = np.frombuffer(self._map, np.uint8)
        self._skip = -self._base.ctypes.data % HUGE_PAGE
        self.address = int(self._base.ctypes.data) + self._skip

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The memory as an array of `size` bytes."""
        return self._base[self._skip : self._skip + self.size]


class Native:
    """The four functions of one library. `dims` are values in the operator's dim order."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        pointer = ctypes.c_void_p
        self._packed_bytes = self._library.packed_bytes
        self._packed_bytes.restype = ctypes.c_size_t
        self._packed_bytes.argtypes = [pointer]
        self._scratch_bytes = self._library.scratch_bytes
        self._scratch_bytes.restype = ctypes.c_size_t
        self._scratch_bytes.argtypes = [pointer]
        self._prepare = self._library.prepare
        self._prepare.restype = ctypes.c_int
        self._prepare.argtypes = [pointer, pointer, pointer]
        self.kernel = self._library.kernel
        self.kernel.restype = ctypes.c_int
        self.kernel.argtypes = [pointer] * 5

    def packed_bytes(self, dims: Sequence[int]) -> int:
        return int(self._packed_bytes(np.array(dims, np.int64).ctypes.data))

    def scratch_bytes(self, dims: Sequence[int]) -> int:
        return int(self._scratch_bytes(np.array(dims, np.int64).ctypes.data))

    def prepare(self, weights: Sequence[npt.NDArray[np.float32]], dims: Sequence[int]) -> Block:
        """The packed weights. Raises `RuntimeError` with the library's return code when it
        refuses.
        """
        whole = [np.ascontiguousarray(weight) for weight in weights]
        table = (ctypes.c_void_p * max(1, len(whole)))(*(array.ctypes.data for array in whole))
        packed = Block(self.packed_bytes(dims))
        values = np.array(dims, np.int64)
        rc = self._prepare(ctypes.addressof(table), values.ctypes.data, packed.address)
        if rc != 0:
            raise RuntimeError(f"prepare returned {rc}, wanted 0")
        return packed
