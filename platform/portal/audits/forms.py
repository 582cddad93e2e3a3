"""What an auditor hands in: a signed envelope, a rejection, a finding."""

from collections.abc import Sequence
from typing import Any

from django import forms

from portal.audits.models import Finding
from portal.audits.overrides import LONGEST_REASON

LARGEST_ENVELOPE_BYTES = 2 * 1024 * 1024


class ApproveForm(forms.Form):
    """An envelope the auditor signed with their own tool and key."""

    envelope = forms.FileField(
        label="Signed envelope (JSON)",
        help_text="The envelope you downloaded, with your signature added. At most 2 MiB.",
    )

    def clean_envelope(self) -> bytes:
        """The uploaded bytes; refused when they are larger than any envelope."""
        upload = self.cleaned_data["envelope"]
        if upload.size > LARGEST_ENVELOPE_BYTES:
            raise forms.ValidationError(
                f"Got {upload.size} bytes, wanted at most {LARGEST_ENVELOPE_BYTES}."
            )
        content: bytes = upload.read()
        return content


class RejectForm(forms.Form):
    """A rejection says why."""

    reason = forms.CharField(
        label="Reason",
        max_length=4000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The customer and the provider read this. A rejected measurement never bills.",
    )


class FindingForm(forms.Form):
    """Something the auditor noticed."""

    severity = forms.ChoiceField(
        choices=Finding.Severity.choices,
        help_text="A blocking finding stops the approval until it is resolved.",
    )
    text = forms.CharField(
        label="Finding", max_length=4000, widget=forms.Textarea(attrs={"rows": 3})
    )


class OverrideForm(forms.Form):
    """The auditor's decision to bill although one rule of sufficiency does not hold."""

    rule = forms.ChoiceField(help_text="One decision, one reason: each rule is overridden alone.")
    reason = forms.CharField(
        label="Reason",
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Printed with your name on the savings, the invoice and the signed report.",
    )

    def __init__(self, *args: Any, rules: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["rule"]
        if isinstance(field, forms.ChoiceField):
            field.choices = rules
