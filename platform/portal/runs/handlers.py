"""Which function does which kind of job."""

from importlib import import_module
from typing import cast

from portal.runs.jobs import Handler

# Import paths, resolved when a worker needs one: the pipeline pulls in the engines.
KINDS = {
    "measure": "portal.runs.pipeline.main.run_measure",
    "remeasure": "portal.runs.pipeline.main.run_remeasure",
    "bill": "portal.runs.pipeline.main.run_bill",
    "seal": "portal.runs.pipeline.main.run_seal",
}


def handler_for(kind: str) -> Handler:
    """Return the handler of a kind; KeyError for one that nobody registered."""
    module, name = KINDS[kind].rsplit(".", 1)
    return cast(Handler, getattr(import_module(module), name))
