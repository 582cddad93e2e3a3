"""Metering: what was measured, what it saved, and what is owed for it.

The measuring half runs LoadGen on stock stacks and on our kernels and estimates the uplift:
``loadgen``, ``stacks``, ``baseline``, ``uplift``, ``evidence``. The money half turns approved
savings into billing records: ``plan``, ``usage``, ``savings``, ``contract``, ``ledger``,
``export``. Invariants: every figure can be recomputed from the files it names; nothing is measured
inside the calling process; money is never a float. Never here: Django, Celery, a signature.
"""
