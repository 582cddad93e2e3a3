"""Kernel packages: built from chosen schedules, bound by digests, loaded only when everything
checks.

In: a graph with schedules, or a package directory. Out: a package directory, or a `CompiledModel`.
Never here: search, judging, tokenising.
"""

from kernelgen.package.build import build, copy_evidence, seal
from kernelgen.package.loader import CompiledModel, load
from kernelgen.package.manifest import PackageError, check_files, read_manifest

__all__ = [
    "CompiledModel",
    "PackageError",
    "build",
    "check_files",
    "copy_evidence",
    "load",
    "read_manifest",
    "seal",
]
