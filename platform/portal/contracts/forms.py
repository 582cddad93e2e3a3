"""Forms of a contract version: a signature made offline, and the cost a break-even starts from."""

from decimal import Decimal

from django import forms


class SignatureForm(forms.Form):
    """A key id and the base64 of an Ed25519 signature over the offered bytes."""

    key_id = forms.RegexField(
        r"^[0-9a-f]{64}$",
        label="Key id",
        help_text="SHA-256 of your public key's SubjectPublicKeyInfo, 64 hex digits.",
        error_messages={"invalid": "Wanted 64 hex digits, lower case."},
    )
    signature_b64 = forms.CharField(
        label="Signature, base64",
        max_length=200,
        help_text="Ed25519 over exactly the bytes you downloaded.",
    )


class CostForm(forms.Form):
    """What the work costs a month as it runs now; empty for the figure that is known."""

    monthly_cost = forms.DecimalField(
        label="What this work costs a month today",
        required=False,
        min_value=Decimal(0),
        max_digits=18,
        decimal_places=6,
        help_text="In the contract's currency. Empty: the newest counterfactual, or the plan's "
        "cores around the clock.",
    )


class SeenForm(CostForm):
    """The customer's word that they have seen what a search will cost and may bring."""

    monthly_cost = forms.DecimalField(
        required=False, min_value=Decimal(0), max_digits=18, decimal_places=6,
        widget=forms.HiddenInput,
    )  # fmt: skip
    seen = forms.BooleanField(
        label="I have seen what the search is expected to cost, and when it would pay back.",
        error_messages={"required": "Confirm that you have seen the break-even above."},
    )
