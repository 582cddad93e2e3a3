"""Guessing a password ends in a page that says how long to wait, for that name and address only."""

import pytest
from django.test import Client


@pytest.mark.django_db
def test_repeated_wrong_passwords_lock_the_sign_in(settings):
    settings.AXES_ENABLED = True
    client = Client()
    answers = [
        client.post("/sign-in/", {"username": "owner", "password": f"guess {number}"})
        for number in range(settings.AXES_FAILURE_LIMIT)
    ]
    assert [answer.status_code for answer in answers[:-1]] == [200] * (len(answers) - 1)
    assert answers[-1].status_code == 429
    assert "portal/locked.html" in [template.name for template in answers[-1].templates]
    assert client.post("/sign-in/", {"username": "other", "password": "x"}).status_code == 200
