"""`manage.py openapi`: print the API's OpenAPI document, as the golden test keeps it."""

import json
from typing import Any

from django.core.management.base import BaseCommand

from portal.api.root import api


class Command(BaseCommand):
    help = "Print the OpenAPI document of the API."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(json.dumps(api.get_openapi_schema(), indent=1, sort_keys=True))
