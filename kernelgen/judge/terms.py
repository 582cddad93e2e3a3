"""What a C text may ask for: two sets of terms for the one screen and the one walled compiler.

In: nothing. Out: `PACKAGED`, for sources that come with a package and may use all that our own
emitter uses, and `WRITTEN`, for kernels that somebody writes during a search and that need no file,
no assembly and no header at all. Never here: how a text is checked or compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PRELUDE = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
float expf(float x);
float erff(float x);
float sqrtf(float x);
float tanhf(float x);
float fmaf(float x, float y, float z);
#define NULL ((void *)0)
#define INFINITY (__builtin_inff())
#define EXPORT __attribute__((visibility("default")))
"""
"""What a written kernel finds declared; it stands for the headers below."""

HEADERS = frozenset({"stddef.h", "stdint.h", "string.h", "math.h", "float.h", "limits.h"})

ATTRIBUTES = frozenset(
    {
        "aligned",
        "always_inline",
        "cold",
        "const",
        "default",
        "flatten",
        "hot",
        "may_alias",
        "noinline",
        "nonnull",
        "packed",
        "pure",
        "unused",
        "vector_size",
        "visibility",
    }
)


@dataclass(frozen=True)
class Terms:
    """`text_bytes` bounds a text before and after macros are expanded. `closed`: the text reads no
    file, not even a header (`PRELUDE` stands for those in `HEADERS`), holds no assembly, and meets
    no compiler without walls. `attributes` are those allowed, None for all that are not forbidden;
    `pragmas` matches the rest of a pragma line. `memory_mib` and `file_mib` bind the compiler.
    """

    text_bytes: int
    closed: bool
    attributes: frozenset[str] | None
    pragmas: re.Pattern[str]
    memory_mib: int
    file_mib: int


PACKAGED = Terms(
    text_bytes=16 << 20,
    closed=False,
    attributes=None,
    pragmas=re.compile(
        r"(?:(?:GCC|clang)\s+(?:unroll|nounroll|ivdep|optimize|reset_options|push_options"
        r"|pop_options|target|visibility|diagnostic|novector|system_header)\b|STDC\b"
        r"|omp\s+simd\b|pack\b|(?:push|pop)_macro\b|unroll\b).*"
    ),
    memory_mib=6144,
    file_mib=512,
)

WRITTEN = Terms(
    text_bytes=128 << 10,
    closed=True,
    attributes=ATTRIBUTES,
    pragmas=re.compile(r"GCC (?:unroll \d+|ivdep)"),
    memory_mib=3072,
    file_mib=32,
)
