"""Filters of stored files."""

import django_filters

from portal.documents.models import StoredFile
from portal.web.filtering import ListFilter


class FileFilter(ListFilter):
    """Files by kind, name or digest."""

    kind = django_filters.CharFilter(label="Kind")
    name = django_filters.CharFilter(lookup_expr="icontains", label="Name contains")
    sha256 = django_filters.CharFilter(lookup_expr="startswith", label="SHA-256 starts with")

    class Meta:
        model = StoredFile
        fields = ("kind", "name", "sha256")
