"""Filters of trials, measurements and jobs."""

import django_filters

from portal.runs.models import Job, Measurement, TuningEvent

OUTCOMES = (("true", "accepted"), ("false", "refused"))


class TrialFilter(django_filters.FilterSet):
    """Trials by operator, outcome and the judge's reason."""

    operator = django_filters.CharFilter(lookup_expr="icontains", label="Operator contains")
    accepted = django_filters.TypedChoiceFilter(
        choices=OUTCOMES, coerce=lambda text: text == "true", label="Outcome"
    )
    reason = django_filters.CharFilter(lookup_expr="icontains", label="Reason contains")

    class Meta:
        model = TuningEvent
        fields = ("operator", "accepted", "reason")


class MeasurementFilter(django_filters.FilterSet):
    """Measurements by state."""

    state = django_filters.ChoiceFilter(choices=Measurement.State.choices, label="State")

    class Meta:
        model = Measurement
        fields = ("state",)


class JobFilter(django_filters.FilterSet):
    """Jobs by state and kind."""

    state = django_filters.ChoiceFilter(choices=Job.State.choices, label="State")
    kind = django_filters.CharFilter(lookup_expr="icontains", label="Kind contains")

    class Meta:
        model = Job
        fields = ("state", "kind")
