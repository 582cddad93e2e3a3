"""MiniLM-L3 and -L6 text encoders: hidden 384, 12 heads of 32, 1536 in the middle, 30522 words.

In: nothing. Out: the encoder's operators at 8, 32 and 128 tokens, and one ragged batch.
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops import (
    Attention,
    EmbedLayernorm,
    GemmBias,
    GemmBiasGelu,
    GemmBiasResidualLayernorm,
    MeanPool,
)
from kernelgen.ops.activation import Gelu
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.ops.layernorm import Layernorm, ResidualLayernorm
from kernelgen.ops.softmax import Softmax

HIDDEN, HEADS, MIDDLE, WORDS, POSITIONS = 384, 12, 1536, 30522, 512
EPSILON = 1e-12
TOKENS = (8, 32, 128)
RAGGED = {"n": 8, "tokens": 192}


def cases() -> list[Case]:
    found = []
    by_rows = (
        GemmBias(HIDDEN, 3 * HIDDEN),
        GemmBiasGelu(HIDDEN, MIDDLE),
        GemmBiasResidualLayernorm(HIDDEN, HIDDEN, EPSILON),
        GemmBiasResidualLayernorm(MIDDLE, HIDDEN, EPSILON),
    )
    by_sequence = (
        Attention(HEADS, HIDDEN // HEADS, (HIDDEN // HEADS) ** -0.5),
        EmbedLayernorm(WORDS, POSITIONS, HIDDEN, EPSILON),
        MeanPool(HIDDEN),
    )
    apart = (Gelu(MIDDLE), Layernorm(HIDDEN, EPSILON), ResidualLayernorm(HIDDEN, EPSILON))
    bytes_too = (GemmInt8(HIDDEN, MIDDLE), GemmInt8(MIDDLE, HIDDEN), GemmInt8(HIDDEN, HIDDEN))
    for tokens in TOKENS:
        found += [
            Case("minilm", operator, {"m": tokens}, quick=tokens == 8)
            for operator in (*by_rows, *apart, *bytes_too)
        ]
        rows = {"m": HEADS * tokens}
        found.append(Case("minilm", Softmax(tokens), rows, quick=tokens == 32))
        found.append(Case("minilm", Softmax(tokens, True), rows))
        found += [
            Case("minilm", operator, {"n": 1, "tokens": tokens}, quick=tokens == 8)
            for operator in by_sequence
        ]
    found += [Case("minilm", operator, RAGGED) for operator in by_sequence]
    return found
