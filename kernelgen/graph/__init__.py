"""Models come in here: ONNX is read, its shape arithmetic folded, its operators recognised, its
memory planned.

In: an ONNX file. Out: a `Graph` of operator calls, a memory `Plan`, and the float64 oracle of the
whole model.
Never here: C text, schedules, timing.
"""

from kernelgen.graph.encoder import TextEncoder
from kernelgen.graph.memory import Plan, plan
from kernelgen.graph.onnx_file import GraphError, OnnxModel, read
from kernelgen.graph.recognise import load, recognise
from kernelgen.graph.types import Graph, Step

__all__ = [
    "Graph",
    "GraphError",
    "OnnxModel",
    "Plan",
    "Step",
    "TextEncoder",
    "load",
    "plan",
    "read",
    "recognise",
]
