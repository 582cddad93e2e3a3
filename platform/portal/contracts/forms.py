"""The form with which a party hands in a signature it made offline."""

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
