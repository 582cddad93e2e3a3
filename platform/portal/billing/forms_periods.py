"""Forms of finance: open a period, bill it on an approved measurement, close it."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms

from portal.billing.closing import NOTE_LENGTH
from portal.runs.models import Measurement
from portal.web.formats import signed_percent


class OpenForm(forms.Form):
    """Which month of which contract version."""

    contract_version = forms.UUIDField(label="Contract version")
    label = forms.RegexField(
        r"^[0-9]{4}-[0-9]{2}(-[0-9]{2})?$",
        label="Period",
        error_messages={"invalid": "Wanted a month such as 2026-11, or a first day."},
    )


class BillForm(forms.Form):
    """The approved measurement that a period's savings are computed on."""

    measurement = forms.ChoiceField(
        label="Approved measurement",
        help_text="The savings, the invoice and the report rest on it.",
        error_messages={"invalid_choice": "Wanted an approved measurement of this contract."},
    )

    def __init__(self, data: Any = None, *, choices: Iterable[Measurement]) -> None:
        super().__init__(data)
        self.rows = {str(row.pk): row for row in choices}
        field = cast(forms.ChoiceField, self.fields["measurement"])
        field.choices = [(pk, _told(row)) for pk, row in self.rows.items()]

    def clean_measurement(self) -> Measurement:
        """The chosen row."""
        return self.rows[self.cleaned_data["measurement"]]


def _told(row: Measurement) -> str:
    """Contract version, lower bound, whether it is kept, and the id's first characters."""
    kept = "" if row.kept else ", not kept: bills 0"
    bound = signed_percent(row.uplift_lower_95, 2)
    return f"{row.contract_version}: {bound} at the lower bound{kept} ({str(row.pk)[:8]})"


class CloseForm(forms.Form):
    """Why something stays open, and that closing is final."""

    note = forms.CharField(
        label="What stays open, and why",
        required=False,
        max_length=NOTE_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Wanted when a point of the checklist says 'left open'. It is kept in the close.",
    )
    final = forms.BooleanField(
        label="I have read the checklist. A closed period is never reopened.",
        error_messages={"required": "Confirm it: a closed period is never reopened."},
    )
