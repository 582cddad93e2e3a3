"""Filters of reviews."""

import django_filters

from portal.audits.models import Review
from portal.web.filtering import ListFilter


class ReviewFilter(ListFilter):
    """Reviews by state."""

    state = django_filters.ChoiceFilter(
        choices=Review.State.choices, label="State", empty_label="any"
    )

    class Meta:
        model = Review
        fields = ("state",)
