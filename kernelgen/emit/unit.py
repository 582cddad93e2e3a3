"""One operator, one schedule, one C file behind the judged interface.

In: operator and schedule. Out: C text and flags; a `Section`, which is one operator's share of a
file that holds several. Never here: a compiler call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernelgen import sketches
from kernelgen.emit.c import Writer, describe
from kernelgen.emit.matrix import flags_of, matrix_words
from kernelgen.emit.part import BAD_ALIGNMENT, c_name, fill
from kernelgen.emit.turns import turns
from kernelgen.emit.vocabulary import vocabulary
from kernelgen.machine import Machine, isa_flags
from kernelgen.ops import Operator
from kernelgen.schedule.schedule import Schedule, ScheduleError
from kernelgen.sketches.sketch import fitted

_BANNER = """\
/* Generated kernel. Operator ${name}.
   Replay: ${schedule} */
"""

_SECTION = """
/* ---- ${name} ----
     schedule ${schedule}
${buffers} */
"""

_UNIT = """
/* ---- the judged interface ---- */
EXPORT size_t packed_bytes(const int64_t *dim) {
  (void)dim;
  return sizeof(float) * (size_t)${p}_packed_floats();
}
EXPORT int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  if ((uintptr_t)packed % 64) return ${bad_alignment};
  ${p}_pack(weight, packed);
  return 0;
}
EXPORT size_t scratch_bytes(const int64_t *dim) {
  return sizeof(float) * (size_t)${p}_scratch_floats(dim);
}
EXPORT int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
                  void *scratch) {
  if ((uintptr_t)packed % 64 || (uintptr_t)scratch % 64) return ${bad_alignment};
  return ${p}_run(in, out, dim, packed, scratch);
}
"""


KEPT = 64
"""Sections at hand: a search and a model ask for the same few again and again."""

_SHORT = {
    "gemm_bias": "gemm",
    "gemm_bias_gelu": "gemm_gelu",
    "gemm_bias_residual_layernorm": "gemm_norm",
    "embed_layernorm": "embed",
    "mean_pool": "pool",
}


def prefix_of(operator: Operator) -> str:
    """What the C names of an operator begin with: a short family name and the sizes."""
    short = _SHORT.get(operator.family, operator.family)
    return c_name(short + operator.name.removeprefix(operator.family))


def uses_tiles(schedules: Iterable[Schedule]) -> bool:
    """Whether any of the schedules runs on the matrix unit."""
    return any(schedule.as_dict.get("tiles", 0) != 0 for schedule in schedules)


@dataclass(frozen=True)
class Section:
    """`text` defines the four functions of `prefix`; `writer` knows the words they use."""

    schedule: Schedule
    prefix: str
    text: str
    writer: Writer


@lru_cache(maxsize=KEPT)
def section(operator: Operator, schedule: Schedule) -> Section:
    """The share of `operator` in a file. Raises `ScheduleError` when the two do not fit, or no
    sketch serves the operator's family.
    """
    if schedule.operator != operator.name:
        raise ScheduleError(f"schedule is for {schedule.operator!r}, wanted {operator.name!r}")
    prefix, sketch = prefix_of(operator), sketches.find(operator.family)
    if sketch is None:
        raise ScheduleError(f"{operator.name}: no sketch for family {operator.family!r}")
    kernel = fitted(sketch, operator, schedule)
    writer = Writer(kernel, schedule.number("vector"))
    functions = writer.text(prefix)
    comment = {
        "name": kernel.name,
        "schedule": schedule.text(),
        "buffers": describe(kernel),
    }
    return Section(schedule, prefix, fill(_SECTION, comment) + functions, writer)


def words_of(sections: Sequence[Section]) -> str:
    """C of every word that `sections` use, each once: what a file begins with."""
    writers = [item.writer for item in sections]
    lanes = {count for writer in writers for count in writer.lanes}
    quads = {count for writer in writers for count in writer.quads}
    return "".join(
        (
            vocabulary(lanes, dot4=quads),
            turns(turn for writer in writers for turn in writer.turns),
            matrix_words(word for writer in writers for word in writer.matrix),
        )
    )


def source(operator: Operator, schedule: Schedule) -> str:
    """The C translation unit of `operator` under `schedule`; raises `ScheduleError` when they do
    not fit.
    """
    own = section(operator, schedule)
    banner = fill(_BANNER, name=operator.name, schedule=schedule.text())
    return "".join((banner, words_of([own]), own.text, interface(own)))


def interface(own: Section) -> str:
    """The four functions of a judged kernel, which call those of a section."""
    return fill(_UNIT, p=own.prefix, bad_alignment=BAD_ALIGNMENT)


def flags(machine: Machine, *schedules: Schedule) -> tuple[str, ...]:
    """Compiler flags of a file that holds kernels under `schedules`: the ISA level that the widest
    vectors need, the matrix unit where one runs on it, and the optimisation level.

    Named levels and no -march=native: the manifest then says everything about how the binary came
    to be.
    """
    widest = 0
    for schedule in schedules:
        vector = schedule.as_dict.get("vector", 8)
        if not isinstance(vector, int):
            got = f"axis vector holds {vector!r}, wanted a number"
            raise ScheduleError(f"{schedule.operator}: {got}")
        widest = max(widest, vector)
    level = isa_flags(machine.isa, widest)
    unit = flags_of(machine.isa) if uses_tiles(schedules) else ()
    return ("-O3", "-fno-math-errno", "-fno-trapping-math", *level, *unit)
