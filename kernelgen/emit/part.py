"""What every generated file shares: error numbers, names, numbers, filled templates.

In: template text, names, values. Out: C text. Never here: what any operator computes.

Every emitted operator is four static functions that start with a prefix, so that one file can hold
one operator or a whole model:

    int64_t P_packed_floats(void)               floats of the packed weights, a multiple of 16
    void P_pack(weight, packed)                 weights in operator order
    int64_t P_scratch_floats(dim)               a multiple of 16
    int P_run(in, out, dim, packed, scratch)    0, or a number of `ERRORS`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

OK = 0
BAD_ALIGNMENT = 2
BAD_ID = 3
BAD_LENGTH = 4
BAD_OFFSETS = 5
BAD_PAGE = 6

ERRORS: Mapping[int, str] = {
    BAD_ALIGNMENT: "packed weights or scratch are not 64-byte aligned",
    BAD_ID: "a token id is outside the vocabulary",
    BAD_LENGTH: "a sequence is longer than the model's positions",
    BAD_OFFSETS: "offsets do not start at 0, rise by at least one and end at the token count",
    BAD_PAGE: "a page number is outside the pool",
}
"""What a non-zero return of a generated kernel means."""


def fill(template: str, values: Mapping[str, object] | None = None, /, **more: object) -> str:
    """Replace every `${name}`; an unknown name raises `KeyError`, so no template can be half
    filled.
    """
    return Template(template).substitute({**(values or {}), **more})


def c_name(text: str) -> str:
    """`text` as a C identifier."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())


def c_float(value: float) -> str:
    """A float32 literal that reads back exactly, with the decimal value in a comment."""
    import numpy as np

    narrow = float(np.float32(value))
    mantissa = narrow.hex()
    return f"{mantissa}f /* {narrow:.9g} */"
