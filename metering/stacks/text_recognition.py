"""What every stack does alike around a recogniser of the PP-OCR family: padding before, spelling
after.

In: lines (float32, (3, 48, width), scaled to [-1, 1]) and a model file. Out: one padded batch, the
model's alphabet, and the text of what it scored. Both sides are part of the measured call: padding
depends on the batch, and a system answers with text. Nothing here is specific to a runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from metering.datasets.reading import greedy_labels, spell
from metering.stacks.system import Image, OutputPort, StackError, choose_output

LEAST_WIDTH = 320
"""PaddleOCR never hands these models a narrower batch (``rec_img_shape`` [3, 48, 320])."""

ALPHABET_KEY = "character"


def pad_lines(batch: Sequence[Image]) -> npt.NDArray[np.float32]:
    """(n, 3, 48, W) with W the widest line, at least 320, zero beyond each line's own width."""
    widest = max(LEAST_WIDTH, *(line.shape[2] for line in batch))
    padded = np.zeros((len(batch), *batch[0].shape[:2], widest), dtype=np.float32)
    for place, line in enumerate(batch):
        padded[place, :, :, : line.shape[2]] = line
    return padded


def read_alphabet(model: Path) -> tuple[str, ...]:
    """Characters by label: the blank, those the model carries in its metadata, and the space.

    Raises StackError for a model without them.
    """
    import onnx

    properties = onnx.load(str(model), load_external_data=False).metadata_props
    found = [item.value for item in properties if item.key == ALPHABET_KEY]
    if len(found) != 1 or not found[0]:
        raise StackError(
            f"{model.name}: its metadata has no {ALPHABET_KEY!r}, the characters by label; "
            f"it has {[item.key for item in properties]}"
        )
    return ("", *found[0].splitlines(), " ")


def choose_scores(ports: Sequence[OutputPort], wanted: str) -> int:
    """Index of the output with the scores (n, places, labels): ``wanted``, or the only one of rank
    three in float32. Raises StackError."""
    if wanted:
        return choose_output(ports, wanted)
    found = [place for place, port in enumerate(ports) if port.float32 and port.rank == 3]
    if len(found) != 1:
        names = [name for port in ports for name in port.names]
        raise StackError(f"output: {len(found)} outputs hold scores; name one of {names}")
    return found[0]


def read_scores(scores: npt.NDArray[np.float32], alphabet: Sequence[str]) -> list[str]:
    """Text of each line of (n, places, labels). Raises StackError for another alphabet."""
    if scores.ndim != 3 or scores.shape[2] != len(alphabet):
        raise StackError(
            f"scores: got {scores.shape}, wanted (n, places, {len(alphabet)}), the labels of the "
            "model's alphabet"
        )
    return [spell(labels, alphabet) for labels in greedy_labels(scores)]
