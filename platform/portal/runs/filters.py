"""Filters of trials, measurements and jobs."""

from typing import get_args

import django_filters

from kernelgen.agent.results import EventKind
from portal.runs.models import Job, Measurement, TuningEvent
from portal.web.filtering import ListFilter

KINDS = tuple((kind, kind.replace("_", " ")) for kind in get_args(EventKind))


class TrialFilter(ListFilter):
    """Lines of a search by kind, operator and words."""

    kind = django_filters.ChoiceFilter(choices=KINDS, label="What", empty_label="any")
    operator = django_filters.CharFilter(lookup_expr="icontains", label="Operator contains")
    text = django_filters.CharFilter(lookup_expr="icontains", label="Words contain")

    class Meta:
        model = TuningEvent
        fields = ("kind", "operator", "text")


class MeasurementFilter(ListFilter):
    """Measurements by state."""

    state = django_filters.ChoiceFilter(
        choices=Measurement.State.choices, label="State", empty_label="any"
    )

    class Meta:
        model = Measurement
        fields = ("state",)


class JobFilter(ListFilter):
    """Jobs by state and kind."""

    state = django_filters.ChoiceFilter(choices=Job.State.choices, label="State", empty_label="any")
    kind = django_filters.CharFilter(lookup_expr="icontains", label="Kind contains")

    class Meta:
        model = Job
        fields = ("state", "kind")
