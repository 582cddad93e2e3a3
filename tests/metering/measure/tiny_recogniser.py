"""A small real recogniser on stock stacks, with lines it reads, so that tests measure in seconds.

Digits of 48 rows and 12 columns, each followed by as much paper; a convolution compares every block
with ten glyphs, and a second one beside it only costs time, as the layers of a real model do. The
alphabet is in the model's metadata, where PP-OCR models have theirs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from metering.datasets.text_lines import HEIGHT, Line, TextLines, write_text_lines

COLUMNS, PAPER, CHANNELS = 12, 128, 12
GLYPHS = np.random.default_rng(5).random((10, HEIGHT, COLUMNS)) < 0.5


def glyph_lines(seed: int, count: int) -> TextLines:
    """Lines of 4 to 12 digits with a few specks, in the place of ``text_lines``."""
    drawn = [_line(np.random.default_rng([seed, index])) for index in range(count)]
    return TextLines(tuple(line for line, _ in drawn), tuple(text for _, text in drawn))


def _line(rng: np.random.Generator) -> tuple[Line, str]:
    digits = rng.integers(0, 10, size=int(rng.integers(4, 13)))
    line = np.full((HEIGHT, 2 * COLUMNS * len(digits)), PAPER, dtype=np.uint8)
    for place, digit in enumerate(digits):
        start = 2 * COLUMNS * place
        line[:, start : start + COLUMNS][GLYPHS[digit]] = 255
    specks = rng.integers(0, [[HEIGHT], [line.shape[1]]], size=(2, 6))
    line[specks[0], specks[1]] = 160
    return np.repeat(line[:, :, None], 3, axis=2), "".join(map(str, digits))


def write_lines(path: Path, seed: int, count: int) -> None:
    write_text_lines(glyph_lines(seed, count), path)


def write_recogniser(path: Path) -> None:
    """(n, 3, 48, W) to scores (n, W / 12, 12): the blank, ten digits, the space."""
    rng = np.random.default_rng(0)
    ink = GLYPHS.astype(np.float32)
    # Distance to a glyph: -|x - g|^2 + |x|^2 = 2 x g - |g|^2; nothing at all is nearest to blank.
    weights = np.zeros((CHANNELS, 3, HEIGHT, COLUMNS), dtype=np.float32)
    weights[1:11] = 2 * ink[:, None] / 3
    bias = np.full(CHANNELS, -1e4, dtype=np.float32)
    bias[0] = -50
    bias[1:11] = -(ink**2).sum(axis=(1, 2))
    values = {
        "weights": weights,
        "bias": bias,
        "wide": rng.standard_normal((16, 3, 2, 2)).astype(np.float32),
        "deep": rng.standard_normal((CHANNELS, 16, HEIGHT // 2, COLUMNS // 2)).astype(np.float32),
        "little": np.array(1e-6, dtype=np.float32),
        "row": np.array([2], dtype=np.int64),
    }
    block = [HEIGHT // 2, COLUMNS // 2]
    nodes = [
        helper.make_node("Conv", ["x", "wide"], ["seen"], strides=[2, 2]),
        helper.make_node("Tanh", ["seen"], ["bent"]),
        helper.make_node("Conv", ["bent", "deep"], ["felt"], strides=block),
        helper.make_node("Mul", ["felt", "little"], ["hint"]),
        helper.make_node("Conv", ["x", "weights", "bias"], ["compared"], strides=[HEIGHT, COLUMNS]),
        helper.make_node("Add", ["compared", "hint"], ["blocks"]),
        helper.make_node("Squeeze", ["blocks", "row"], ["places"]),
        helper.make_node("Transpose", ["places"], ["scores"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "recogniser",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, HEIGHT, "w"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", "places", CHANNELS])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"character": "\n".join("0123456789")})
    onnx.checker.check_model(model)
    onnx.save(model, path)
