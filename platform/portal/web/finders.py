"""Serves plotly.min.js from the installed plotly wheel as a static file.

The wheel already ships the bundle that matches its figure format, so the repository carries no copy
and a version bump moves both together. Only that one file is exposed: the folder beside it holds
data sets and a notebook widget that no page needs.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

PLOTLY_PREFIX = "vendor/plotly"
PLOTLY_FILE = "plotly.min.js"


def plotly_folder() -> Path | None:
    """The wheel's package_data folder, found without importing plotly; None when absent."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "package_data"
    return folder if (folder / PLOTLY_FILE).is_file() else None


class PrefixedStorage(FileSystemStorage):
    """Files of one folder, published under a URL prefix (collectstatic reads `prefix`)."""

    prefix = PLOTLY_PREFIX


class PlotlyFinder(BaseFinder):
    """Finds vendor/plotly/plotly.min.js and nothing else."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Fail `manage.py check` when the wheel does not carry the bundle."""
        if plotly_folder() is None:
            return [
                Error(
                    "plotly's package_data/plotly.min.js is missing, charts cannot be drawn",
                    hint="Install the plotly wheel of the lock file again.",
                    id="portal.web.E001",
                )
            ]
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The file's path for its published name, else an empty list as Django's contract asks."""
        folder = plotly_folder()
        if folder is None or path != f"{PLOTLY_PREFIX}/{PLOTLY_FILE}":
            return []
        found = str(folder / PLOTLY_FILE)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        """Yield the one file for collectstatic and WhiteNoise."""
        folder = plotly_folder()
        if folder is not None:
            yield PLOTLY_FILE, PrefixedStorage(location=str(folder))
