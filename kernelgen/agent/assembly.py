"""Kernels and whole models put together from parts that are compiled once: one object per operator
and schedule, and a small file of calls.

In: a graph, schedules. Out: shared objects that do what those from the single files do, in a
fraction of the time where the parts were there before. They are for trials and races inside a
search; a package is always compiled from its one file, and judged as that.
Never here: a race, a package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelgen.emit import model_source
from kernelgen.emit.matrix import flags_of
from kernelgen.emit.part import fill
from kernelgen.emit.unit import Section, interface, section, uses_tiles, words_of
from kernelgen.graph.types import Graph
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.package.build import MODEL_COMPILE_LIMIT_S, model_flags
from kernelgen.schedule import Schedule
from kernelgen.targets.cpu import CompileOutcome, compile_shared

_OFFERED = """
/* ---- what the model calls, compiled apart ---- */
int64_t part_${p}_packed_floats(void) { return ${p}_packed_floats(); }
int64_t part_${p}_scratch_floats(const int64_t *dim) { return ${p}_scratch_floats(dim); }
void part_${p}_pack(const void *const *weight, float *packed) { ${p}_pack(weight, packed); }
int part_${p}_run(const void *const *in, void *const *out, const int64_t *dim, const float *packed,
                  float *scratch) {
  return ${p}_run(in, out, dim, packed, scratch);
}
"""

_CALLED = """
/* ---- ${name}, compiled apart ---- */
#define ${p}_packed_floats part_${p}_packed_floats
#define ${p}_scratch_floats part_${p}_scratch_floats
#define ${p}_pack part_${p}_pack
#define ${p}_run part_${p}_run
int64_t ${p}_packed_floats(void);
int64_t ${p}_scratch_floats(const int64_t *dim);
void ${p}_pack(const void *const *weight, float *packed);
int ${p}_run(const void *const *in, void *const *out, const int64_t *dim, const float *packed,
             float *scratch);
"""


class Assembly:
    """Models of one graph; parts and results stay in `work`."""

    def __init__(self, graph: Graph, machine: Machine, work: Path) -> None:
        self._graph = graph
        self._machine = machine
        self._work = work
        self.compiled = 0
        """Parts that had to be compiled so far."""

    def build(self, schedules: Mapping[str, Schedule]) -> CompileOutcome:
        """The whole model; `seconds` are those of what had to be compiled. Raises `ScheduleError`
        as `model_source` does.
        """
        graph = self._graph
        text = model_source(graph, schedules)
        options = model_flags(self._machine, [schedules[name] for name in graph.operators])
        seconds, objects = 0.0, []
        for name, operator in graph.operators.items():
            own = section(operator, schedules[name])
            text = _apart(text, own, name)
            made = self._part(own, options)
            seconds += made.seconds
            if made.path is None:
                return CompileOutcome(None, made.stderr, seconds)
            objects.append(str(made.path))
        path = self._work / f"model-{_digest(text, [*options, *objects])}.so"
        if path.exists():
            return CompileOutcome(path, "", seconds)
        made = compile_shared(text, (*options, *objects), path, limit_s=MODEL_COMPILE_LIMIT_S)
        return CompileOutcome(made.path, made.stderr, seconds + made.seconds)

    def kernel(
        self, operator: Operator, schedule: Schedule, options: Sequence[str], out: Path
    ) -> CompileOutcome:
        """One operator behind the judged interface, its part compiled with `options`."""
        own = section(operator, schedule)
        made = self._part(own, options)
        if made.path is None:
            return made
        text = "".join((words_of([]), _called(own, operator.name), interface(own)))
        linked = compile_shared(text, (*options, str(made.path)), out)
        return CompileOutcome(linked.path, linked.stderr, made.seconds + linked.seconds)

    def _part(self, own: Section, options: Sequence[str]) -> CompileOutcome:
        """The object of one operator, at the model's own level of instructions."""
        unit = () if uses_tiles([own.schedule]) else flags_of(self._machine.isa)
        kept = [flag for flag in options if flag not in unit]
        text = "".join((words_of([own]), own.text, fill(_OFFERED, p=own.prefix)))
        path = self._work / f"part-{_digest(text, kept)}.o"
        if path.exists():
            return CompileOutcome(path, "", 0.0)
        self.compiled += 1
        return compile_shared(text, (*kept, "-c"), path, limit_s=MODEL_COMPILE_LIMIT_S)


def _apart(text: str, own: Section, name: str) -> str:
    """The model's text with declarations in place of one operator's functions."""
    if text.count(own.text) != 1:
        raise ValueError(f"{name}: its functions are {text.count(own.text)} times in the model")
    return text.replace(own.text, _called(own, name))


def _called(own: Section, name: str) -> str:
    return fill(_CALLED, p=own.prefix, name=name)


def _digest(text: str, options: Sequence[str]) -> str:
    return hashlib.sha256("\0".join((text, *options)).encode()).hexdigest()[:24]
