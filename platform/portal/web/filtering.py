"""The base of every filter of a list; the same filter feeds the page and its CSV.

django-filter publishes no types, so the one untyped step is here and nowhere else.
"""

import django_filters


class ListFilter(django_filters.FilterSet):  # type: ignore[misc]  # no types are published
    """A filter over the rows a selector returned."""
