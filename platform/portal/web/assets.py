"""Names that settings need from the shell, in one place and free of Django imports.

Settings import these constants, so nothing in this module may import Django: it runs while settings
are still being read. Everything a page loads comes from here or from an installed wheel: no CDN, no
build step, and no copy of Plotly's 4.8 MB bundle in the repository.
"""

from typing import Any

# Django's two finders, then one that hands out plotly.min.js straight from the plotly wheel.
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "portal.web.finders.PlotlyFinder",
]

CSRF_FAILURE_VIEW = "portal.web.views.csrf_failure"

# django-axes shows this page, with status 429, while a sign-in is locked.
AXES_LOCKOUT_TEMPLATE = "portal/locked.html"

DJANGO_TABLES2_TEMPLATE = "portal/parts/table.html"

# django-csp 4. Nothing inline; chart pages alone add inline styles (see access.chart_page).
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "object-src": ["'none'"],
    },
}
