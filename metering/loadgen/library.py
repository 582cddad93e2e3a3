"""The query sample library: sentences as token ids, read from one ``.npz`` file.

In: a file with ``ids`` (int64, all sentences end to end) and ``offsets`` (int64, n + 1). Out: one
int64 vector per sentence. Kept apart from the kernel engine so that a measuring process loads
nothing but the stack it measures.
"""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt


class LibraryError(ValueError):
    """A sample file that cannot be used; the message names the file and what is wrong."""


def load_library(path: Path) -> list[npt.NDArray[np.int64]]:
    """Every sentence of the file, in order. Raises LibraryError."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            ids, offsets = arrays["ids"], arrays["offsets"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LibraryError(
            f"samples: cannot read {path.name}: {error}; wanted an .npz with ids and offsets"
        ) from error
    if ids.dtype != np.int64 or offsets.dtype != np.int64 or ids.ndim != 1 or offsets.ndim != 1:
        raise LibraryError(f"samples: {path.name} must hold two int64 vectors, ids and offsets")
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(ids) or np.diff(offsets).min() < 1:
        raise LibraryError(f"samples: {path.name} has offsets that do not cut ids into sentences")
    return [ids[start:stop] for start, stop in itertools.pairwise(offsets)]
