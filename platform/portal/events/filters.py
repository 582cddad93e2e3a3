"""Filters of the audit trail."""

import django_filters

from portal.events.models import Event
from portal.web.filtering import ListFilter


class EventFilter(ListFilter):
    """Events by action, person or subject."""

    action = django_filters.CharFilter(lookup_expr="icontains", label="Action contains")
    actor_label = django_filters.CharFilter(lookup_expr="icontains", label="Who contains")
    subject_id = django_filters.CharFilter(label="Exact subject id")

    class Meta:
        model = Event
        fields = ("action", "actor_label", "subject_id")
