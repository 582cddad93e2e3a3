"""The one NinjaAPI; every router of every app hangs here."""

from ninja import NinjaAPI

api = NinjaAPI(
    title="Ignition",
    version="1",
    urls_namespace="api",
    description="Baselines, measurements, usage and invoices of one organisation.",
)
