"""gunicorn's settings for the benchmark: what a first request would load is loaded before the fork.

Django reads its addresses, and with them every view, at the first request. A worker that takes the
place of a killed one would spend its first seconds on that.
"""

from typing import Any

preload_app = True


def when_ready(server: Any) -> None:
    """Once the application is there and before the first worker is."""
    from django.urls import get_resolver

    server.log.debug("%s addresses", len(get_resolver().url_patterns))
