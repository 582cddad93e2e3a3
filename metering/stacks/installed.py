"""Which build of a runtime is installed, found without importing it.

In: a distribution name. Out: version and a digest over its compiled files, as its installer
recorded them. Importing a runtime takes seconds and starts threads, so discovery never does.
"""

from __future__ import annotations

import hashlib
from importlib import metadata

from metering.stacks.system import StackInfo


def installed(name: str, distribution: str, install: str, *, suffix: str = ".so") -> StackInfo:
    """What is installed under ``distribution``; ``install`` is what to run when it is not.

    The digest covers the files with ``suffix`` in their name, compiled ones unless told otherwise.
    """
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return StackInfo(name, "", "", False, f"not installed: {install}")
    recorded = sorted(
        f"{item} {item.hash.value}"
        for item in found.files or ()
        if item.hash is not None and suffix in item.name
    )
    if not recorded:
        return StackInfo(name, found.version, "", False, f"its files are not recorded: {install}")
    digest = hashlib.sha256("\n".join(recorded).encode()).hexdigest()
    return StackInfo(name, found.version, digest, True, "")
