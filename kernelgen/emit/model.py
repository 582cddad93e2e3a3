"""The whole model as one C file: every operator's kernel, called in order over ragged tokens,
nothing padded.

In: a `Graph` and one schedule per operator, plus one for the model itself. Out: C text with the
same four functions as a single operator.
Never here: operator internals, choices.

Chains of row-wise operators run block by block (`rows` of the model's schedule), so that what
passes between them stays in cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.emit.part import BAD_ALIGNMENT, fill
from kernelgen.emit.unit import prefix_of, section, words_of
from kernelgen.graph.memory import Plan, plan
from kernelgen.graph.types import Graph, Step
from kernelgen.schedule.schedule import Schedule, ScheduleError

MODEL = "text_encoder"

_BANNER = """\
/* Generated model: text encoder, ${steps} operator calls, ${kinds} kernels.
   Model file sha256 ${sha256}
   In: ids int64[tokens], offsets int64[n + 1] (sequences laid end to end).
   Out: embeddings float32[n][${hidden}].
   Replay:
${replay}
*/
"""

_MODEL = """
/* ======== the model ======== */

/* Packed weights: one area per step, in order of use. */
EXPORT size_t packed_bytes(const int64_t *dim) {
  (void)dim;
  int64_t floats = 0;
${packed_sizes}
  return sizeof(float) * (size_t)floats;
}

EXPORT int prepare(const void *const *weight, const int64_t *dim, void *packed) {
  (void)dim;
  if ((uintptr_t)packed % 64) return ${bad_alignment};
  float *p = packed;
${packing}
  return 0;
}

/* Activations of all rows (${whole} floats each), of one block of rows (${block} each), then the
   largest operator scratch. */
INLINE int64_t model_inner(const int64_t *dim) {
  int64_t most = 0;
  const int64_t row_dim[1] = {${rows}};
  (void)row_dim;
${inner_sizes}
  return most;
}
EXPORT size_t scratch_bytes(const int64_t *dim) {
  const int64_t tokens = dim[1];
  return sizeof(float) * (size_t)(${whole} * tokens + ${block} * ${rows} + model_inner(dim));
}

/* 0, or what is wrong: see the error numbers in the manifest. dim = {n, tokens}. */
EXPORT int kernel(const void *const *in, void *const *out, const int64_t *dim,
                  const void *packed_area, void *scratch_area) {
  if ((uintptr_t)packed_area % 64 || (uintptr_t)scratch_area % 64) return ${bad_alignment};
  const int64_t tokens = dim[1];
  const int64_t *ids = in[0], *offsets = in[1];
  const float *packed = packed_area;
  float *whole = scratch_area;
  float *block = whole + ${whole} * tokens;
  float *inner = block + ${block} * ${rows};
  int rc;
${pointers}
${calls}
  return 0;
}
"""

_ALONE = """
  { /* ${label}: ${operator} */
    const void *const args[] = {${args}};
    void *const outs[] = {${out}};
    rc = ${p}_run(args, outs, dim, w${index}, inner);
    if (rc) return rc;
  }
"""

_CHAIN = """
  { /* ${labels}: blocks of nearly equal height, ${rows} rows at most */
    const int64_t blocks = (tokens + ${rows} - 1) / ${rows};
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t row = b * tokens / blocks;
      const int64_t m[1] = {(b + 1) * tokens / blocks - row};
${body}    }
  }
"""

_CHAINED = """\
      { /* ${label}: ${operator} */
        const void *const args[] = {${args}};
        void *const outs[] = {${out}};
        rc = ${p}_run(args, outs, m, w${index}, inner);
        if (rc) return rc;
      }
"""


def model_source(graph: Graph, schedules: Mapping[str, Schedule]) -> str:
    """C of the whole model. `schedules` maps every operator name, and `text_encoder`, to a
    schedule.

    Raises `ScheduleError` naming the operator whose schedule is missing.
    """
    for name in (*graph.operators, MODEL):
        if name not in schedules:
            raise ScheduleError(f"schedules: {name!r} is missing, got {sorted(schedules)}")
    used = [schedules[name] for name in graph.operators]
    sections = {
        name: section(operator, schedules[name]) for name, operator in graph.operators.items()
    }
    layout = plan(graph)
    rows = schedules[MODEL].number("rows")
    replay = "\n".join(f"     {item.text()}" for item in (*used, schedules[MODEL]))
    banner = {
        "steps": len(graph.steps),
        "kinds": len(sections),
        "sha256": graph.model_sha256,
        "hidden": graph.hidden,
        "replay": replay,
    }
    values: dict[str, object] = {
        "bad_alignment": BAD_ALIGNMENT,
        "whole": layout.whole_width,
        "block": layout.block_width,
        "rows": rows,
        "packed_sizes": _packed_sizes(graph),
        "packing": _packing(graph),
        "inner_sizes": _inner_sizes(graph),
        "pointers": _pointers(graph),
        "calls": _calls(graph, layout, rows),
    }
    return "".join(
        (
            fill(_BANNER, banner),
            words_of(list(sections.values())),
            *(item.text for item in sections.values()),
            fill(_MODEL, values),
        )
    )


def _name(step: Step) -> str:
    return prefix_of(step.operator)


def _packed_sizes(graph: Graph) -> str:
    return "\n".join(
        f"  floats += {graph.uses(name)} * {prefix_of(operator)}_packed_floats();"
        for name, operator in graph.operators.items()
    )


def _packing(graph: Graph) -> str:
    lines, place = [], 0
    for step in graph.steps:
        lines.append(f"  {_name(step)}_pack(weight + {place}, p);  /* {step.label} */")
        lines.append(f"  p += {_name(step)}_packed_floats();")
        place += len(step.weights)
    return "\n".join(lines)


def _inner_sizes(graph: Graph) -> str:
    lines = []
    for operator in graph.operators.values():
        dim = "row_dim" if operator.dims == ("m",) else "dim"
        size = f"{prefix_of(operator)}_scratch_floats({dim})"
        lines.append(f"  if ({size} > most) most = {size};")
    return "\n".join(lines)


def _pointers(graph: Graph) -> str:
    lines, before = [], "packed"
    for index, step in enumerate(graph.steps):
        lines.append(f"  const float *w{index} = {before};")
        before = f"w{index} + {_name(step)}_packed_floats()"
    return "\n".join(lines)


def _calls(graph: Graph, layout: Plan, rows: int) -> str:
    text = []
    place = {step.label: index for index, step in enumerate(graph.steps)}
    final = graph.steps[-1].output

    def at(value: str, in_chain: bool) -> str:
        """C expression for where `value` begins, for this block of rows inside a chain."""
        if value in ("ids", "offsets"):
            return value
        if value == final:
            return "out[0]"
        spot = layout.places[value]
        if not spot.whole:
            return f"block + {spot.offset} * {rows}"
        shift = f" + row * {spot.width}" if in_chain else ""
        return f"whole + {spot.offset} * tokens{shift}"

    for group in layout.chains:
        chained = group[0].row_wise
        calls = [
            fill(
                _CHAINED if chained else _ALONE,
                {
                    "label": step.label,
                    "operator": step.operator.name,
                    "args": ", ".join(at(value, chained) for value in step.inputs),
                    "p": _name(step),
                    "out": at(step.output, chained),
                    "index": place[step.label],
                },
            )
            for step in group
        ]
        if chained:
            labels = ", ".join(step.label for step in group)
            calls = [fill(_CHAIN, {"labels": labels, "rows": rows, "body": "".join(calls)})]
        text += calls
    return "".join(text)
