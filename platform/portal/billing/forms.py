"""What a person hands in about an issued document: contested lines, amounts to credit.

In: a POST, or for the sandbox a query. Out: cleaned values under the names of the services'
arguments, or a message at the field. Only the fields named here are read. Whether an amount may be
credited, or a term assumed, is the engine's to say: its refusals are put at the field they name by
`refuse`.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django import forms

from metering.decimals import parse_decimal, to_text
from metering.refusal import Refusal
from portal.billing.assumptions import CHOICE, WHOLE, Assumption
from portal.billing.previews import LineLeft
from portal.billing.savings import BillingError

LONGEST_REASON = 300


class CorrectionForm(forms.Form):
    """The base: a reason, and `confirmed`, given once the figures have been seen."""

    reason = forms.CharField(
        max_length=LONGEST_REASON, widget=forms.Textarea(attrs={"rows": 3}), label="Reason"
    )

    def refuse(self, error: Refusal | BillingError) -> None:
        """Put a refusal at the field it names, or above the form."""
        self.add_error(self.field_of(getattr(error, "field", "")), str(error))

    def field_of(self, name: str) -> str | None:
        """The form's field for an engine's field name; None when it is about the whole."""
        return name if name in self.fields else None


class DisputeForm(CorrectionForm):
    """Lines of one invoice that the customer contests, and why."""

    confirmed = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__(data)
        self.fields["lines"] = forms.MultipleChoiceField(
            choices=choices,
            widget=forms.CheckboxSelectMultiple,
            label="Contested lines",
            help_text="The other lines stay collectible.",
            error_messages={"required": "Choose at least one line."},
        )
        self.order_fields(["lines", "reason"])
        self.fields["reason"].help_text = "Finance and the auditor read this."

    def field_of(self, name: str) -> str | None:
        """The engine names the lines `line_ids`."""
        return "lines" if name == "line_ids" else super().field_of(name)


class CreditForm(CorrectionForm):
    """Amounts to credit by line, or everything that is left."""

    everything = forms.BooleanField(
        required=False,
        label="Credit everything that is left",
        help_text="Fee, holdback and tax of the document then come to exactly zero.",
    )
    # How many credit notes the document had when the figures were shown: a form sent twice, or
    # by two people, credits once.
    confirmed = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, lines: Sequence[LineLeft], currency: str) -> None:
        super().__init__(data)
        self.lines = [line for line in lines if line.left]
        self.fields["reason"].help_text = "It stands on the credit note."
        for line in self.lines:
            self.fields[f"amount_{line.line_id}"] = forms.CharField(
                required=False,
                max_length=80,
                label=f"Line {line.line_id}: {line.description}",
                help_text=f"At most the {to_text(line.left)} {currency} left; empty: none of it.",
                widget=forms.TextInput(attrs={"inputmode": "decimal"}),
            )
        self.order_fields(["everything", *(f"amount_{line.line_id}" for line in self.lines)])

    def clean(self) -> dict[str, Any]:
        """`amounts`: by line id, or None for everything; one of the two must be given."""
        given: dict[str, Any] = super().clean() or {}
        amounts: dict[str, Decimal] = {}
        for line in self.lines:
            name = f"amount_{line.line_id}"
            text = str(given.get(name, "")).strip()
            if text:
                try:
                    amounts[line.line_id] = parse_decimal(text, f"amounts.{line.line_id}")
                except Refusal as error:
                    self.refuse(error)
        if given.get("everything") and amounts:
            self.add_error("everything", "Amounts are given below: leave them empty, or this.")
        elif not given.get("everything") and not amounts and not self.errors.keys() - {"reason"}:
            self.add_error("everything", "Give an amount of at least one line, or choose this.")
        given["amounts"] = None if given.get("everything") else amounts
        return given

    def field_of(self, name: str) -> str | None:
        """The engine names an amount `amounts.LINE`."""
        return super().field_of(name.replace("amounts.", "amount_"))


class AuditForm(forms.Form):
    """The approved measurement whose uplift an invoice is settled on."""

    confirmed = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__(data)
        self.fields["measurement"] = forms.ChoiceField(
            choices=choices,
            label="Measurement",
            help_text="Approved ones of the kernel and the baseline that were billed. Volume, "
            "cores and price stay as they were.",
        )


class SandboxForm(forms.Form):
    """The assumptions of one invoice, each with its own value until another one is given.

    `cleaned_data` then holds text by place, and `changed` what differs from the invoice.
    """

    def __init__(self, given: Mapping[str, str], *, known: Sequence[Assumption]) -> None:
        self.known = {item.place: item for item in known}
        super().__init__({**{item.place: item.value for item in known}, **given})
        for item in known:
            self.fields[item.place] = _field(item)

    @property
    def groups(self) -> list[tuple[str, list[Any]]]:
        """Bound fields by group, in order."""
        found: dict[str, list[Any]] = {}
        for place, item in self.known.items():
            found.setdefault(item.group, []).append(self[place])
        return list(found.items())

    def clean(self) -> dict[str, Any]:
        """Text that is a number where a number is wanted; the engine checks the rest."""
        given: dict[str, Any] = super().clean() or {}
        for place, text in list(given.items()):
            item = self.known[place]
            if item.kind == CHOICE or not text:
                continue
            try:
                number = parse_decimal(text, item.label)
                if item.kind == WHOLE and number != number.to_integral_value():
                    raise Refusal(item.label, text, "a whole number")
            except Refusal as error:
                self.add_error(place, str(error))
        return given

    @property
    def changed(self) -> dict[str, str]:
        """Values that are not the invoice's own; 0.2 is 0.20."""
        return {
            place: text
            for place, text in self.cleaned_data.items()
            if not _same(text, self.known[place])
        }

    def refuse(self, error: Refusal | BillingError) -> None:
        """Put an engine's refusal at the field it names, or above the form."""
        name = re.sub(r"\[(\d+)\]", r".\1", getattr(error, "field", ""))
        name = re.sub(r"^case\.", "", name)
        name = re.sub(r"^contract\.", "contracts.0.", name)
        if name not in self.fields:
            # The engine may name a value without its place: then the one that was changed.
            last = name.rpartition(".")[2]
            found = [place for place in self.changed if place.rpartition(".")[2] == last]
            name = found[0] if len(found) == 1 else ""
        self.add_error(name or None, str(error))


def _field(item: Assumption) -> forms.Field:
    told: dict[str, Any] = {
        "label": item.label, "required": not item.optional, "help_text": item.hint,
    }  # fmt: skip
    if item.kind == CHOICE:
        return forms.ChoiceField(choices=item.choices, **told)
    widget = forms.TextInput(attrs={"inputmode": "decimal"})
    return forms.CharField(max_length=80, widget=widget, **told)


def _same(text: str, item: Assumption) -> bool:
    if item.kind == CHOICE or not text or not item.value:
        return text == item.value
    return parse_decimal(text) == parse_decimal(item.value)
