"""The shape every emitted operator has, so that one file can hold one operator or a whole model.

In: template text and names. Out: a `Part`: static C functions behind four uniform signatures that
start with a prefix.
Never here: what any operator computes.

    static int64_t P_packed_floats(void);                               floats of the packed
    weights, a multiple of 16 static void    P_pack(const void *const *weight, float *packed);
    weights in operator order static int64_t P_scratch_floats(const int64_t *dim);                a
    multiple of 16 static int     P_run(const void *const *in, float *out, const int64_t *dim, const
    float *packed, float *scratch);
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from kernelgen.schedule.schedule import ScheduleError

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


@dataclass(frozen=True)
class Part:
    """`text` defines the four functions of `prefix`; `vectors` lists the vector widths (floats) it
    uses.
    """

    prefix: str
    vectors: tuple[int, ...]
    text: str


def fill(template: str, values: Mapping[str, object]) -> str:
    """Replace every `${name}`; an unknown name raises `KeyError`, so no template can be half
    filled.
    """
    return Template(template).substitute({key: str(value) for key, value in values.items()})


def must_divide(operator: str, what: str, part: int, whole: int) -> None:
    """Refuse a schedule whose pieces would run past the end; raises `ScheduleError`."""
    if part < 1 or whole % part:
        raise ScheduleError(f"{operator}: {what} of {part} do not divide {whole} evenly")


def c_name(text: str) -> str:
    """`text` as a C identifier."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())


def round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def c_float(value: float) -> str:
    """A float32 literal that reads back exactly, with the decimal value in a comment."""
    import numpy as np

    narrow = float(np.float32(value))
    mantissa = narrow.hex()
    return f"{mantissa}f /* {narrow:.9g} */"
