"""Pooling over square windows of images: the largest pixel, or the mean of those inside the image.

In: images [n, channels, height, width]. Out: [n, channels, h, w], or [n, channels] over the whole
image. The dims are the output's sizes. Formula: ONNX MaxPool 12, AveragePool 19 with
count_include_pad = 0, GlobalAveragePool 1. Never here: how an image is walked. The largest of a
window with a NaN is not defined, as in ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgen.ops.conv import margin, padded, windows
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Example,
    Operator,
    Tensor,
    bytes_of,
    sum_growth,
    values,
)


@dataclass(frozen=True)
class MaxPool(Operator):
    """out[i, c, y, x] = the largest pixel of the window."""

    channels: int
    kernel: int
    stride: int
    padding: int

    family: ClassVar[str] = "max_pool"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.channels}_k{self.kernel}s{self.stride}p{self.padding}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        extra = margin(self.kernel, self.stride, self.padding)
        if extra < 0 or self.padding >= self.kernel:
            raise ValueError(
                f"{self.family}: padding {self.padding} with kernel {self.kernel}: wanted windows "
                "that reach the image"
            )
        sizes = [f"{self.stride}*{axis}" if self.stride > 1 else axis for axis in ("h", "w")]
        rest = tuple(f"{size}+{extra}" if extra else size for size in sizes)
        image: tuple[str | int, ...] = ("n", self.channels, *rest)
        return (
            Tensor("x", image, "float32", "input"),
            Tensor("out", ("n", self.channels, "h", "w"), "float32", "output"),
        )

    def _windows(self, x: Array, value: float) -> Array:
        wide = padded(x, self.padding, self.padding, value)
        return windows(wide, (self.kernel, self.kernel), self.stride)

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self._windows(arrays["x"], -np.inf).max(axis=(4, 5))}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, self.tensors[0].sizes(dims), regime)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["n"] * self.channels * dims["h"] * dims["w"] * self.kernel**2

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3, 2, 2, 0), {"h": 5, "n": 1, "w": 21}),
            Example(cls(2, 3, 1, 1), {"h": 4, "n": 2, "w": 19}),
            Example(cls(2, 3, 2, 1), {"h": 3, "n": 1, "w": 9}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """A maximum rounds nothing."""
        shape = self.tensors[1].sizes(dims)
        return {"out": np.zeros(shape)}


@dataclass(frozen=True)
class AvgPool(MaxPool):
    """out[i, c, y, x] = the mean of the window's pixels that lie inside the image."""

    family: ClassVar[str] = "avg_pool"

    def _mean(self, x: Array) -> tuple[Array, Array]:
        inside = self._windows(np.ones_like(x), 0.0).sum(axis=(4, 5))
        return self._windows(x, 0.0).sum(axis=(4, 5)) / inside, inside

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": self._mean(arrays["x"])[0]}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size, _ = self._mean(np.abs(arrays["x"]))
        return {"out": UNIT_ROUNDOFF * sum_growth(self.kernel**2) * size}


@dataclass(frozen=True)
class GlobalAvgPool(Operator):
    """out[i, c] = the mean of all pixels of a channel."""

    channels: int

    family: ClassVar[str] = "global_avg_pool"

    @property
    def name(self) -> str:
        return f"{self.family}_{self.channels}"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", ("n", self.channels, "h", "w"), "float32", "input"),
            Tensor("out", ("n", self.channels), "float32", "output"),
        )

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"out": arrays["x"].astype(np.float64).mean(axis=(2, 3))}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        return {"x": values(rng, self.tensors[0].sizes(dims), regime)}

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["n"] * self.channels * (dims["h"] * dims["w"] + 1)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3), {"h": 5, "n": 2, "w": 7}),
            Example(cls(2), {"h": 8, "n": 1, "w": 32}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size = np.abs(arrays["x"].astype(np.float64)).mean(axis=(2, 3))
        return {"out": UNIT_ROUNDOFF * sum_growth(dims["h"] * dims["w"]) * size}
