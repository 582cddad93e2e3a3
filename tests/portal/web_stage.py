"""The stage of the page tests, built once per module and rolled back after it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from tests.portal.web_data import Stage, build


@pytest.fixture(scope="module")
def stage(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A whole portal. Tests of one module share it; each test's own writes are rolled back."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setattr(settings, "IGNITION_HOME", home)
        with transaction.atomic():
            yield build(home)
            transaction.set_rollback(True)
