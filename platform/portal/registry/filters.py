"""Filters of systems and model mixes."""

import django_filters

from portal.registry.models import ModelMix, System
from portal.web.filtering import ListFilter


class SystemFilter(ListFilter):
    """Systems by part of their name or fingerprint."""

    name = django_filters.CharFilter(lookup_expr="icontains", label="Name contains")
    fingerprint = django_filters.CharFilter(
        lookup_expr="startswith", label="Fingerprint starts with"
    )

    class Meta:
        model = System
        fields = ("name", "fingerprint")


class MixFilter(ListFilter):
    """Model mixes by part of the mix's or the model's name."""

    name = django_filters.CharFilter(lookup_expr="icontains", label="Name contains")
    model = django_filters.CharFilter(
        field_name="model__name", lookup_expr="icontains", label="Model contains"
    )

    class Meta:
        model = ModelMix
        fields = ("name", "model")
