"""Attention of one new token per sequence over its cache of keys and values.

In: queries [n, q_heads, d], the new keys and values [n, kv_heads, d], the caches, int64 lengths.
Out: [n, q_heads, d]. Formula: softmax(q k^T scale) v per head (Vaswani et al. 2017). A length
counts the new token: its key and value are the last position and come from the inputs; the cache
holds the length - 1 before it. Contents of the cache from there on mean nothing.
Never here: writing the cache; the program that owns it appends the same two rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.operator import Array, Example, Operator, Tensor, bytes_of, values
from kernelgen.ops.softmax_rows import attend, attend_bound

PAGE = 16
"""Positions in one page of a paged cache, as serving engines lay them out."""

Caches = tuple[Array, Array]


@dataclass(frozen=True)
class _Decode(Operator):
    """What the two layouts of the cache have in common."""

    q_heads: int
    kv_heads: int
    head_size: int
    scale: float

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.q_heads % self.kv_heads:
            raise ValueError(
                f"{self.family}: q_heads {self.q_heads}, kv_heads {self.kv_heads}: wanted the "
                "first a multiple of the second"
            )

    @property
    def name(self) -> str:
        return f"{self.family}_{self.q_heads}q{self.kv_heads}x{self.head_size}"

    @property
    def constants(self) -> Mapping[str, float]:
        return {"scale": self.scale}

    def _around(self, *caches: Tensor) -> tuple[Tensor, ...]:
        one = ("n", self.kv_heads, self.head_size)
        queries = ("n", self.q_heads, self.head_size)
        return (
            Tensor("q", queries, "float32", "input"),
            Tensor("key", one, "float32", "input"),
            Tensor("value", one, "float32", "input"),
            *caches,
            Tensor("lengths", ("n",), "int64", "input"),
            Tensor("out", queries, "float32", "output"),
        )

    @abstractmethod
    def _history(self, arrays: Mapping[str, Array], row: int, cached: int) -> Caches:
        """Cached keys and values of sequence `row`: [cached, kv_heads, d] each."""

    @abstractmethod
    def _most(self, dims: Mapping[str, int]) -> int:
        """The longest a sequence may be."""

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return self._each(attend, arrays)

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return self._each(attend_bound, arrays)

    def _each(self, rows: Callable[..., Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        out = np.empty(arrays["q"].shape, np.float64)
        for row, length in enumerate(arrays["lengths"].tolist()):
            k, v = self._history(arrays, row, length - 1)
            k = np.concatenate([k, arrays["key"][row : row + 1]]).transpose(1, 0, 2)
            v = np.concatenate([v, arrays["value"][row : row + 1]]).transpose(1, 0, 2)
            made = rows(arrays["q"][row][:, None], k, v, self.scale)
            out[row] = made[:, 0]
        return {"out": out}

    def _lengths(self, rng: np.random.Generator, dims: Mapping[str, int], regime: str) -> Array:
        """Full caches for the nominal contents, which are timed; any length for the others."""
        most = self._most(dims)
        if regime == "nominal":
            return np.full(dims["n"], most, np.int64)
        drawn = rng.random(dims["n"]) ** (3.0 if regime == "ragged" else 1.0)
        return (1 + np.floor(drawn * most)).astype(np.int64)

    def _token(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        shapes = {tensor.name: tensor.sizes(dims) for tensor in self.tensors[:3]}
        return {name: values(rng, shape, regime) for name, shape in shapes.items()}

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["n"] * self._most(dims) * self.q_heads * (4 * self.head_size + 12)


@dataclass(frozen=True)
class AttentionDecode(_Decode):
    """The cache of each sequence is one block, [n, max_len, kv_heads, d]; 1 to max_len long."""

    family: ClassVar[str] = "attention_decode"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        cache = ("n", "max_len", self.kv_heads, self.head_size)
        return self._around(
            Tensor("key_cache", cache, "float32", "input"),
            Tensor("value_cache", cache, "float32", "input"),
        )

    def _most(self, dims: Mapping[str, int]) -> int:
        return dims["max_len"]

    def _history(self, arrays: Mapping[str, Array], row: int, cached: int) -> Caches:
        return arrays["key_cache"][row, :cached], arrays["value_cache"][row, :cached]

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        shape = self.tensors[3].sizes(dims)
        return {
            **self._token(rng, dims, regime),
            "key_cache": values(rng, shape, regime),
            "value_cache": values(rng, shape, regime),
            "lengths": self._lengths(rng, dims, regime),
        }

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        # The last place of a full cache belongs to the new token, whose rows are inputs.
        row = 2 * 4 * dims["n"] * self.kv_heads * self.head_size
        return bytes_of(self.tensors, dims) - row

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3, 1, 32, 32**-0.5), {"n": 3, "max_len": 37}),
            Example(cls(2, 2, 64, 0.125), {"n": 2, "max_len": 16}),
            Example(cls(8, 1, 128, 128**-0.5), {"n": 1, "max_len": 3}),
        )


@dataclass(frozen=True)
class AttentionDecodePaged(_Decode):
    """The caches are pools of pages [pages, 16, kv_heads, d]; `table` [n, max_pages] holds, in
    order, the int32 page numbers of each sequence. 1 <= length <= 16 max_pages. Sequences may
    share pages. Entries past the cached positions mean nothing.
    """

    family: ClassVar[str] = "attention_decode_paged"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        pool = ("pages", PAGE, self.kv_heads, self.head_size)
        return self._around(
            Tensor("key_cache", pool, "float32", "input"),
            Tensor("value_cache", pool, "float32", "input"),
            Tensor("table", ("n", "max_pages"), "int32", "input"),
        )

    def _most(self, dims: Mapping[str, int]) -> int:
        return PAGE * dims["max_pages"]

    def _history(self, arrays: Mapping[str, Array], row: int, cached: int) -> Caches:
        used = arrays["table"][row, : -(-cached // PAGE)]
        k, v = (
            arrays[name][used].reshape(-1, self.kv_heads, self.head_size)[:cached]
            for name in ("key_cache", "value_cache")
        )
        return k, v

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        shape = self.tensors[3].sizes(dims)
        lengths = self._lengths(rng, dims, regime)
        return {
            **self._token(rng, dims, regime),
            "key_cache": values(rng, shape, regime),
            "value_cache": values(rng, shape, regime),
            "table": self._table(rng, dims, lengths),
            "lengths": lengths,
        }

    @staticmethod
    def _table(rng: np.random.Generator, dims: Mapping[str, int], lengths: Array) -> Array:
        """Pages in no order, each used once where there are enough; -1 where none is needed."""
        wanted = dims["n"] * dims["max_pages"]
        drawn = [rng.permutation(dims["pages"]) for _ in range(-(-wanted // dims["pages"]))]
        table = np.concatenate(drawn)[:wanted].reshape(dims["n"], dims["max_pages"])
        needed = -(-(lengths - 1) // PAGE)
        table[np.arange(dims["max_pages"]) >= needed[:, None]] = -1
        return table.astype(np.int32)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        held = min(dims["pages"], dims["n"] * dims["max_pages"])
        row = 2 * 4 * min(dims["n"], held) * self.kv_heads * self.head_size
        return bytes_of(self.tensors, {**dims, "pages": held}) - row

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3, 1, 32, 32**-0.5), {"n": 3, "pages": 11, "max_pages": 3}),
            Example(cls(2, 2, 64, 0.125), {"n": 2, "pages": 1, "max_pages": 2}),
        )
