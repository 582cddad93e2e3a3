"""Every page route of the portal, found in the url conf, with the object each one is tried on."""

from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.portal.web_data import Stage


@dataclass(frozen=True)
class Route:
    """One named route: its full name, its view, the names of its arguments."""

    name: str
    view: Any
    arguments: tuple[str, ...]


def routes() -> list[Route]:
    """All routes below the root, the API (which has its own tests) left out."""
    found: list[Route] = []

    def walk(resolver: URLResolver, namespace: str) -> None:
        for entry in resolver.url_patterns:
            if isinstance(entry, URLPattern):
                name = f"{namespace}{entry.name}"
                arguments = tuple(entry.pattern.regex.groupindex or entry.pattern.converters)
                found.append(Route(name, entry.callback, arguments))
            elif entry.namespace != "api":
                walk(entry, f"{namespace}{entry.namespace}:" if entry.namespace else namespace)

    walk(get_resolver(), "")
    return sorted(found, key=lambda route: route.name)


def url_of(route: Route, stage: Stage) -> str:
    """The route's address for the stage's own objects."""
    objects = {
        "system_id": stage.system.pk,
        "mix_id": stage.mix.pk,
        "contract_version_id": stage.draft.pk,
        "baseline_id": stage.baseline.pk,
        "tuning_id": stage.tuning.pk,
        "measurement_id": stage.measurement.pk,
        "job_id": stage.job.pk,
        "review_id": stage.open_review.pk,
        "finding_id": stage.open_review.findings.get().pk,
        "batch_id": stage.organisation.usage_batches.get().pk,
        "line_id": stage.organisation.usage_batches.get().parked.earliest("pk").pk,
        "event_id": stage.organisation.usage_events.earliest("pk").pk,
        "savings_id": stage.invoice.savings_id,
        "invoice_id": stage.invoice.pk,
        "dispute_id": stage.organisation.disputes.get().pk,
        "period_id": (
            stage.open_period.pk if "review_id" in route.arguments else stage.invoice.period_id
        ),
        "name": "journal",
        "report_id": stage.report.pk,
        "file_id": stage.report.pdf_id,
        "part": "uplift",
        "run_id": "screen-00" if "baseline" in route.name else "uplift-p01-a0-base",
    }
    return reverse(route.name, kwargs={name: objects[name] for name in route.arguments})
