"""kernelgen writes inference kernels for one machine and proves each of them before it is kept.

In: a model graph, a machine, a budget, samples of real traffic. Out: a package of C kernels with
its evidence. This file only names the public surface; the heavy parts load on first use, so that
`import kernelgen` stays cheap.
Never here: metering, reports, the portal; kernelgen knows none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelgen.agent.optimize import optimize
    from kernelgen.agent.results import ModelGate, OperatorResult, TrialEvent, TuneResult
    from kernelgen.machine import Gpu, Machine, describe
    from kernelgen.package.loader import CompiledModel, load

__all__ = [
    "CompiledModel",
    "Gpu",
    "Machine",
    "ModelGate",
    "OperatorResult",
    "TrialEvent",
    "TuneResult",
    "describe",
    "load",
    "optimize",
]

_HOME = {
    "CompiledModel": "kernelgen.package.loader",
    "Gpu": "kernelgen.machine",
    "Machine": "kernelgen.machine",
    "ModelGate": "kernelgen.agent.results",
    "OperatorResult": "kernelgen.agent.results",
    "TrialEvent": "kernelgen.agent.results",
    "TuneResult": "kernelgen.agent.results",
    "describe": "kernelgen.machine",
    "load": "kernelgen.package.loader",
    "optimize": "kernelgen.agent.optimize",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kernelgen' has no attribute {name!r}")
