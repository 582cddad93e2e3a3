"""Whether a binary holds the instructions it is sold for.

In: a shared object; instruction-set words as `Machine.isa` spells them. Out: the words its code
really uses, or a `Refusal`. A kernel named for a matrix unit that holds no such instruction is
another kernel (Lsglang issue 23). Never here: how fast it is.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernelgen.judge.session import Refusal
from kernelgen.judge.verdict import JudgeError
from kernelgen.targets import guard

LIMIT_S = 60.0

_EVIDENCE: Mapping[str, re.Pattern[str]] = {
    word: re.compile(pattern, re.M)
    for word, pattern in {
        "sse4_2": r"\t(pcmpgtq|pcmpestr\w|pcmpistr\w|crc32\w?) ",
        "avx": r"\tv\w+ .*%[xyz]mm",
        "f16c": r"\tvcvt(ph2ps|ps2ph) ",
        "fma": r"\tvfn?m(add|sub)\w*[sp][sd] .*%[xyz]mm",
        # A float kernel may show it by fused multiply-adds alone, or hold the next level only.
        "avx2": r"\tv(p\w+|broadcasts[sd]|gather\w+|perm\w+|extracti128|inserti128) .*%ymm"
        r"|\tvfn?m(add|sub)\w*p[sd] .*%ymm|\tv\w+ .*%zmm",
        "avx_vnni": r"\t(\{vex\} )?vpdpw?[bw]?[us]?[us]?\w*ds?s? .*%[xy]mm",
        "avx512f": r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|\{%k[1-7]\}",
        "avx512_vnni": r"\tvpdp(bus|wss)ds? .*%[xyz]mm",
        "avx512_bf16": r"\t(vdpbf16ps|vcvtne2?ps2bf16) ",
        "avx512_fp16": r"\tv\w+(ph|sh) .*%[xyz]mm",
        "amx_tile": r"\t(ldtilecfg|tileloadd(t1)?|tilestored|tilezero) ",
        "amx_int8": r"\ttdpb(ss|su|us|uu)d ",
        "amx_bf16": r"\ttdpbf16ps ",
        "asimd": r"\bv\d+\.(16b|8h|4s|2d|8b|4h|2s)|\bq\d+\b",
        "asimddp": r"\t[us]dot\t",
        "asimdhp": r"\bv\d+\.(8h|4h).*fmla|\tfmla\tv\d+\.[48]h",
        "i8mm": r"\t(smmla|ummla|usmmla|usdot)\t",
        "bf16": r"\tbf(mmla|dot|cvt|mlal[bt])\w*\t",
        "sve": r"\bz\d+\.[bhsd]\b",
        "sve2": r"\bz\d+\.[bhsd]\b",
    }.items()
}
"""What must be seen at least once in the disassembly, by claim."""

IMPLIED = frozenset(
    ("avx512bw", "avx512cd", "avx512dq", "avx512vl", "bmi1", "bmi2", "sse4_2", "avx", "f16c")
)
"""Levels that a compiler asks for as a whole (x86-64-v3, -v4): needing one is no claim to speed."""


def used(library: Path) -> frozenset[str]:
    """Words of the instruction sets seen in the code of `library`."""
    text = disassembly(library)
    return frozenset(word for word, pattern in _EVIDENCE.items() if pattern.search(text))


def check(library: Path, claims: Iterable[str]) -> None:
    """Refuse `library` when it claims an instruction set of which it holds no instruction."""
    wanted = sorted(set(claims) - IMPLIED)
    unknown = [word for word in wanted if word not in _EVIDENCE]
    if unknown:
        raise Refusal("claimed_isa", f"nobody can check the claim to {', '.join(unknown)}")
    if not wanted:
        return
    text = disassembly(library)
    missing = [word for word in wanted if not _EVIDENCE[word].search(text)]
    if missing:
        raise Refusal(
            "claimed_isa", f"claims {', '.join(missing)} and holds no such instruction; relabel it"
        )


def disassembly(library: Path) -> str:
    """The code of `library` as objdump prints it. Raises `JudgeError` when there is no objdump."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    try:
        done = guard.run(command, limit_s=LIMIT_S)
    except FileNotFoundError as error:
        raise JudgeError("objdump is missing: install binutils") from error
    except subprocess.TimeoutExpired as error:
        raise Refusal("claimed_isa", f"disassembly took over {LIMIT_S:g} s") from error
    if done.returncode != 0:
        raise Refusal("claimed_isa", f"no disassembly: {done.stderr[:300]}")
    return done.stdout
