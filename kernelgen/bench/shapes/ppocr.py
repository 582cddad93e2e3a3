"""PP-OCRv4 mobile: the detector on images of 640 x 640, the recogniser on lines of 48 x 320.

In: nothing. Out: their convolutions with equal strides, dense and depthwise, their pools, and the
recogniser's encoder (two blocks, hidden 120, 8 heads of 15, 40 columns, 6625 letters).
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.activation import Silu
from kernelgen.ops.attention_prefill import AttentionPrefill
from kernelgen.ops.conv import Conv2d, DepthwiseConv2d
from kernelgen.ops.gemm_plain import Gemm
from kernelgen.ops.layernorm import Layernorm
from kernelgen.ops.pool2d import AvgPool, GlobalAvgPool, MaxPool
from kernelgen.ops.softmax import Softmax

# channels, filters, kernel, stride, padding, height and width of the output
DENSE_DETECTOR = (
    (3, 16, 3, 2, 1, 320, 320),
    (16, 32, 1, 1, 0, 320, 320),
    (48, 48, 1, 1, 0, 160, 160),
    (96, 96, 1, 1, 0, 80, 80),
    (192, 192, 1, 1, 0, 40, 40),
    (384, 384, 1, 1, 0, 20, 20),
    (96, 24, 3, 1, 1, 80, 80),
    (96, 24, 3, 1, 1, 20, 20),
)
DENSE_RECOGNISER = (
    (3, 16, 3, 2, 1, 24, 160),
    (32, 64, 1, 1, 0, 24, 160),
    (240, 240, 1, 1, 0, 12, 80),
    (480, 480, 1, 1, 0, 3, 80),
)
# channels, kernel, stride, padding, height and width of the output
DEPTHWISE_DETECTOR = (
    (16, 3, 1, 1, 320, 320),
    (32, 3, 2, 1, 160, 160),
    (96, 3, 1, 1, 80, 80),
    (192, 5, 1, 2, 40, 40),
    (192, 5, 2, 2, 20, 20),
    (384, 5, 1, 2, 20, 20),
)
DEPTHWISE_RECOGNISER = (
    (32, 3, 1, 1, 24, 160),
    (128, 3, 1, 1, 12, 160),
    (240, 5, 1, 2, 12, 80),
    (480, 5, 1, 2, 3, 80),
)
# model, channels, height and width of what a squeeze-and-excite block averages
SQUEEZED = (("ppocr_det", 96, 160, 160), ("ppocr_det", 384, 20, 20), ("ppocr_rec", 480, 6, 80))
HIDDEN, HEADS, MIDDLE, LETTERS, COLUMNS = 120, 8, 240, 6625, 40
EPSILON = 1e-5


def cases() -> list[Case]:
    found = []
    parts = (
        ("ppocr_det", DENSE_DETECTOR, DEPTHWISE_DETECTOR),
        ("ppocr_rec", DENSE_RECOGNISER, DEPTHWISE_RECOGNISER),
    )
    for model, dense, depthwise in parts:
        small = model == "ppocr_rec"
        for channels, filters, kernel, stride, padding, h, w in dense:
            operator = Conv2d(channels, filters, kernel, stride, padding)
            dims = {"n": 1, "h": h, "w": w}
            found.append(Case(model, operator, dims, small and channels == 240))
        for channels, kernel, stride, padding, h, w in depthwise:
            operator = DepthwiseConv2d(channels, channels, kernel, stride, padding)
            dims = {"n": 1, "h": h, "w": w}
            found.append(Case(model, operator, dims, small and channels == 240))
    size = HIDDEN // HEADS
    attention = AttentionPrefill(HEADS, HEADS, size, size**-0.5, 0)
    found.append(Case("ppocr_rec", attention, {"n": 1, "tokens": COLUMNS}))
    by_rows = (
        Gemm(HIDDEN, LETTERS, "bias"),
        Layernorm(HIDDEN, EPSILON),
        Silu(MIDDLE),
        Softmax(LETTERS),
    )
    found += [Case("ppocr_rec", operator, {"m": COLUMNS}) for operator in by_rows]
    for model, channels, h, w in SQUEEZED:
        quick = channels == 480
        found.append(Case(model, GlobalAvgPool(channels), {"n": 1, "h": h, "w": w}, quick))
    for kind in (MaxPool, AvgPool):
        # The classifier's own pool takes the largest; the recogniser's mean has no square window,
        # so the mean is timed at the same size, and the largest at a size with work in it too.
        found.append(Case("ppocr_cls", kind(200, 2, 2, 0), {"n": 1, "h": 1, "w": 48}, True))
        found.append(Case("ppocr_det", kind(96, 2, 2, 0), {"n": 1, "h": 40, "w": 40}))
    return found
