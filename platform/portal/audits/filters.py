"""Filters of reviews."""

import django_filters

from portal.audits.models import Review


class ReviewFilter(django_filters.FilterSet):
    """Reviews by state."""

    state = django_filters.ChoiceFilter(
        choices=Review.State.choices, label="State", empty_label="any"
    )

    class Meta:
        model = Review
        fields = ("state",)
