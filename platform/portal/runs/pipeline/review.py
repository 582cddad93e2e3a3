"""Step "review": state what was measured, sign it for the platform, put it before the auditor.

In: a finished measurement. Out: one open Review with the exact statement and the platform's DSSE
signature. What follows, the auditor's signature, is made outside with the auditor's own tool.
"""

from portal.accounts.access import Actor
from portal.audits.models import Review
from portal.audits.services import review_open
from portal.keystore import platform_keys
from portal.runs.models import Measurement
from portal.runs.pipeline.facts import measurement_facts
from portal.workspace import absolute
from reports import envelope
from reports.recount import recount_measurement
from reports.statement import measurement_statement


def present(*, actor: Actor, measurement: Measurement) -> Review:
    """Return the review of a measurement, opening it when there is none yet."""
    found = Review.objects.filter(measurement=measurement).first()
    if found:
        return found
    evidence = absolute(measurement.evidence_path)
    facts = measurement_facts(measurement)
    # Check before the key is touched: nothing wrong is ever signed.
    recount_measurement(evidence, facts)
    statement = measurement_statement(evidence, facts)
    return review_open(
        actor=actor,
        measurement=measurement,
        statement=statement,
        envelope=envelope.sign(statement, platform_keys().statement),
    )
