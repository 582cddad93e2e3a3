"""Static cost: cycles of a kernel's hot loop in LLVM's scheduling model of named cores.

In: a target and a compiled object. Out: `Static` figures. Never here: caches, memory, anything that
happens outside the loop; the model knows instructions, ports and latencies only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelgen.targets import guard
from kernelgen.targets.figures import Static
from kernelgen.targets.hardware import Target
from kernelgen.targets.toolchain import Line, Tool, disassemble, llvm

_ITERATIONS = 200
# Multiply-add and dot product in the spelling of x86, ARM and RISC-V.
_MULTIPLY_ADD = re.compile(r"^(vfn?m(add|sub|acc|sac)|fml[as]\s+v|[su]dot\s+v|vpdp|tdp|vw?macc)")
_LABEL = ".Lagain"


@dataclass(frozen=True)
class Loop:
    """An innermost loop. `vectors` of its lines are the target's vector instructions,
    `multiply_adds` are multiply-adds or dot products.
    """

    function: str
    lines: tuple[Line, ...]
    vectors: int
    multiply_adds: int

    @property
    def density(self) -> tuple[float, float]:
        """Share of multiply-adds among the instructions, then of vector instructions."""
        return self.multiply_adds / len(self.lines), self.vectors / len(self.lines)


def hot_loop(target: Target, library: Path) -> Loop | None:
    """The innermost loop with the densest multiply-adds, outside `prepare`; None in code without a
    loop that holds vector instructions.
    """
    pattern = re.compile(target.signature)
    best: Loop | None = None
    for name, lines in disassemble(target, library).items():
        if name == "prepare":
            continue
        for body in _innermost(lines):
            vectors = [line for line in body if pattern.match(line.text)]
            sums = sum(_MULTIPLY_ADD.match(line.text) is not None for line in body)
            loop = Loop(name, body, len(vectors), sums)
            if vectors and (best is None or loop.density > best.density):
                best = loop
    return best


def _innermost(lines: Sequence[Line]) -> list[tuple[Line, ...]]:
    start = {line.address: place for place, line in enumerate(lines)}
    spans = [
        (start[line.goes_to], place)
        for place, line in enumerate(lines)
        if line.goes_to in start and start[line.goes_to] <= place
    ]
    return [
        tuple(lines[first : last + 1])
        for first, last in spans
        if not any(
            (other_first, other_last) != (first, last)
            and first <= other_first <= other_last <= last
            for other_first, other_last in spans
        )
    ]


def missing_to_cost(target: Target) -> str | None:
    """Why there is no static cost for `target` here, or None."""
    if not target.cores:
        return "LLVM 19 models no core of this kind"
    if llvm("llvm-mca") is None:
        return Tool("llvm-mca-19", "llvm-19").text()
    return None


def static_cost(target: Target, library: Path) -> tuple[Static, ...]:
    """Cycles of the hot loop on each of the target's named cores.

    Turns of different loops do different work: where the loop has multiply-adds, their number
    divides the cycles and the unit says so, which lets schedules of one operator compare. Raises
    `RuntimeError` with the model's words when it cannot read the loop.
    """
    reason = missing_to_cost(target)
    if reason is not None:
        raise FileNotFoundError(reason)
    loop = hot_loop(target, library)
    if loop is None:
        return ()
    text = _text(target, loop)
    work, unit = (
        (loop.multiply_adds, "cycles/multiply-add instruction")
        if loop.multiply_adds
        else (1, "cycles/turn")
    )
    return tuple(
        Static(_cycles(target, core, text) / work, unit, f"{_version()} {core}")
        for core in target.cores
    )


def _text(target: Target, loop: Loop) -> str:
    lines = [f"{_LABEL}:"]
    if target.architecture == "riscv64":
        # One register per operand, 32-bit elements: what fixed vectors of this width become.
        lines = ["# LLVM-MCA-RISCV-LMUL M1", "# LLVM-MCA-RISCV-SEW E32", *lines]
    for line in loop.lines:
        text = line.text
        if line.goes_to is not None:
            text = re.sub(r"[0-9a-f]+ <[^>]+>$", _LABEL, text)
        lines.append(f"  {text}")
    return "\n".join(lines) + "\n"


@cache
def _version() -> str:
    done = guard.run([str(llvm("llvm-mca")), "--version"], limit_s=60)
    match = re.search(r"version (\S+)", done.stdout)
    return f"llvm-mca {match.group(1) if match else 'unknown'}"


def _cycles(target: Target, core: str, text: str) -> float:
    words = [
        str(llvm("llvm-mca")),
        f"-mtriple={target.architecture}-linux-gnu",
        f"-mcpu={core}",
        f"-iterations={_ITERATIONS}",
        "-json",
    ]
    done = guard.run(words, limit_s=60, given=text.encode())
    if done.returncode != 0:
        raise RuntimeError(f"llvm-mca {core}: {done.stderr.strip()[:500]}")
    view = json.loads(done.stdout)["CodeRegions"][0]["SummaryView"]
    return float(view["TotalCycles"]) / float(view["Iterations"])
