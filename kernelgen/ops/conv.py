"""Two-dimensional convolutions, dense and depthwise, with bias and an optional ReLU.

In: images [n, channels, height, width] and filters. Out: [n, filters, h, w]. The dims are the
output's sizes; an image has `stride` times as many rows and columns, plus what the kernel wants.
Formula: ONNX Conv, version 11. Never here: how an image is walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

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


def margin(kernel: int, stride: int, padding: int) -> int:
    """Rows an image has beyond stride times the output's: the smallest multiple of `stride` that
    leaves room for the last window.
    """
    least = kernel - stride - 2 * padding
    return least + -least % stride


def windows(x: Array, kernel: tuple[int, int], stride: int) -> Array:
    """[n, c, h, w, kernel rows, kernel columns] of a padded image; a view."""
    every = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    result: Array = every[:, :, ::stride, ::stride]
    return result


def padded(x: Array, rows: int, columns: int, value: float = 0.0) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    return np.pad(wide, ((0, 0), (0, 0), (rows, rows), (columns, columns)), constant_values=value)


@dataclass(frozen=True)
class Conv2d(Operator):
    """out[i, f] = sum over channels and window of x w[f] + bias[f], then ReLU if `relu`."""

    channels: int
    filters: int
    kernel: int
    stride: int
    padding: int
    relu: bool = False

    family: ClassVar[str] = "conv2d"

    @property
    def name(self) -> str:
        shape = f"{self.channels}x{self.filters}_k{self.kernel}s{self.stride}p{self.padding}"
        return f"{self.family}_{shape}{'_relu' if self.relu else ''}"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels, self.kernel, self.kernel)

    @property
    def image(self) -> tuple[str | int, ...]:
        extra = margin(self.kernel, self.stride, self.padding)
        if extra < 0:
            raise ValueError(
                f"{self.family}: padding {self.padding} with kernel {self.kernel}, stride "
                f"{self.stride}: wanted a kernel that covers its padding"
            )
        sizes = [f"{self.stride}*{axis}" if self.stride > 1 else axis for axis in ("h", "w")]
        return ("n", self.channels, *(f"{size}+{extra}" if extra else size for size in sizes))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (
            Tensor("x", self.image, "float32", "input"),
            Tensor("weight", self.weight_shape, "float32", "weight"),
            Tensor("bias", (self.filters,), "float32", "weight"),
            Tensor("out", ("n", self.filters, "h", "w"), "float32", "output"),
        )

    @property
    def taps(self) -> int:
        """Products per output element."""
        return self.weight_shape[1] * self.kernel**2

    def _sums(self, x: Array, weight: Array) -> Array:
        window = (self.kernel, self.kernel)
        seen = windows(padded(x, self.padding, self.padding), window, self.stride)
        result: Array = np.einsum(
            "nchwij,fcij->nfhw", seen, weight.astype(np.float64), optimize=True
        )
        return result

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        bias = arrays["bias"].astype(np.float64)[:, None, None]
        out = self._sums(arrays["x"], arrays["weight"]) + bias
        return {"out": np.maximum(out, 0.0) if self.relu else out}

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        plain = "integer_exact" if regime == "integer_exact" else "nominal"
        x, weight = self.tensors[0], self.weight_shape
        return {
            "x": values(rng, x.sizes(dims), regime),
            "weight": values(rng, weight, plain, spread=self.taps**-0.5),
            "bias": values(rng, (self.filters,), plain, spread=0.5),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        return dims["n"] * self.filters * dims["h"] * dims["w"] * (2 * self.taps + 1)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return bytes_of(self.tensors, dims)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(3, 10, 3, 1, 1), {"h": 4, "n": 2, "w": 21}),
            Example(cls(5, 8, 3, 2, 1, True), {"h": 3, "n": 1, "w": 18}),
            Example(cls(9, 12, 1, 1, 0, True), {"h": 3, "n": 2, "w": 7}),
        )

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        size = self._sums(np.abs(arrays["x"]), np.abs(arrays["weight"]))
        size = size + np.abs(arrays["bias"].astype(np.float64))[:, None, None]
        return {"out": UNIT_ROUNDOFF * sum_growth(self.taps) * size}


@dataclass(frozen=True)
class DepthwiseConv2d(Conv2d):
    """out[i, c] = sum over the window of x[i, c] w[c] + bias[c]; `filters` equals `channels`."""

    family: ClassVar[str] = "depthwise_conv2d"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.channels, 1, self.kernel, self.kernel)

    def _sums(self, x: Array, weight: Array) -> Array:
        window = (self.kernel, self.kernel)
        seen = windows(padded(x, self.padding, self.padding), window, self.stride)
        result: Array = np.einsum("nchwij,cij->nchw", seen, weight[:, 0].astype(np.float64))
        return result

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example(cls(5, 5, 3, 1, 1), {"h": 5, "n": 1, "w": 21}),
            Example(cls(3, 3, 5, 2, 2, True), {"h": 3, "n": 2, "w": 19}),
        )
