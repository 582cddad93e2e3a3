"""Our own kernels: a package built by ``kernelgen``, run without padding.

In: the folder of a package. Out: a System over one ``CompiledModel``. One instance is one thread;
the call into the library releases the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metering.loadgen.files import sha256_file
from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.system import Embeddings, StackError, StackInfo, System, TokenIds

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)


def discover(sut: SutSpec | None = None) -> StackInfo:
    """The digest is that of the package's manifest, which names every file of the package."""
    if sut is None or sut.package is None:
        return StackInfo("kernelgen", "", "", False, "sut.package is not set; build a package")
    manifest = Path(sut.package) / "manifest.json"
    if not manifest.is_file():
        return StackInfo("kernelgen", "", "", False, f"no manifest at {manifest}")
    digest = sha256_file(manifest)
    return StackInfo("kernelgen", digest[:12], digest, True, "")


class KernelPackageSystem:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        if sut.package is None:
            raise StackError("kernelgen: sut.package is not set; build a package first")
        if sut.threads != 1:
            raise StackError(
                f"sut.threads: got {sut.threads}, wanted 1; use more instances, one per core"
            )
        import kernelgen

        self._model: Any = kernelgen.load(Path(sut.package))

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        return np.asarray(self._model.run(batch), dtype=np.float32)

    def close(self) -> None:
        self._model.close()


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return KernelPackageSystem(sut, model, output)
