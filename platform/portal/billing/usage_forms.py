"""What somebody asks of the usage: a range of local days in a zone, a model, a system, a source.

In: text of a query string, the same for page, CSV and API. Out: a `UsageQuery`, or errors at their
fields. What is left out is filled in: the billing period (else the month) of the newest usage.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, cast

from django import forms

from metering.fields import check_zone
from metering.plan import Period
from metering.refusal import Refusal
from portal.accounts.models import Membership
from portal.billing import selectors
from portal.billing.conflicts import Content
from portal.billing.usage_keys import CONTESTING
from portal.billing.usage_range import MOST_DAYS, UsageRange
from portal.billing.usage_reads import FATES, PARKED, UsageQuery
from portal.contracts.selectors import contract_list
from portal.registry.selectors import model_list, system_list
from portal.web.formats import instant

# Years whose every day can be moved into every zone.
FIRST_DAY, LAST_DAY = date(1971, 1, 1), date(2199, 12, 31)
STORED = tuple(fate for fate in FATES if fate not in PARKED or fate in CONTESTING)


class UsageForm(forms.Form):
    """The range and what is chosen of it; every field may be left out."""

    start = forms.DateField(
        label="From, first day",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    end = forms.DateField(
        label="To, first day after",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    zone = forms.CharField(max_length=64, label="Zone of the days")
    model = forms.ChoiceField(required=False)
    system = forms.ChoiceField(required=False)
    source = forms.CharField(max_length=200, required=False, strip=False)

    def __init__(self, data: Mapping[str, Any], *, actor: Membership, now: datetime) -> None:
        named = {name: data[name] for name in self.base_fields if data.get(name)}
        super().__init__({**_defaults(actor, now, named), **named})
        known = (("model", model_list(actor=actor)), ("system", system_list(actor=actor)))
        for name, rows in known:
            if name in self.fields:
                names = sorted(set(rows.values_list("name", flat=True)))
                choice = cast(forms.ChoiceField, self.fields[name])
                choice.choices = [("", "all"), *((value, value) for value in names)]

    def clean_zone(self) -> str:
        """A zone of the tz database."""
        name: str = self.cleaned_data["zone"]
        try:
            check_zone(name)
        except Refusal as error:
            raise forms.ValidationError(str(error)) from error
        return name

    def clean(self) -> dict[str, Any]:
        """A range that is not empty, not too long, and of years that every zone knows."""
        start, end = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        for name, day in (("start", start), ("end", end)):
            if day is not None and not FIRST_DAY <= day <= LAST_DAY:
                self.add_error(name, f"Got {day}, wanted a day from {FIRST_DAY} to {LAST_DAY}.")
        if start is not None and end is not None and not {"start", "end"} & set(self.errors):
            if end <= start:
                self.add_error("end", f"Got {end}, wanted a day after {start}.")
            elif (end - start).days > MOST_DAYS:
                self.add_error(
                    "end",
                    f"Got {(end - start).days} days, wanted at most {MOST_DAYS}: ask for the rest "
                    "in a second range.",
                )
        return self.cleaned_data

    @property
    def query(self) -> UsageQuery:
        """What is asked; only of a valid form."""
        chosen = self.cleaned_data
        return UsageQuery(
            UsageRange(chosen["start"], chosen["end"], chosen["zone"]),
            model=chosen.get("model", ""),
            system=chosen.get("system", ""),
            source=chosen["source"],
        )


class StoredForm(UsageForm):
    """Stored events of a range, of one fate if wanted."""

    fate = forms.ChoiceField(required=False, choices=[("", "all"), *((f, f) for f in STORED)])


class ParkedForm(UsageForm):
    """Parked lines of a range, of one fate if wanted; a parked line has no model or system."""

    model = None  # type: ignore[assignment]
    system = None  # type: ignore[assignment]
    fate = forms.ChoiceField(required=False, choices=[("", "all"), *((f, f) for f in PARKED)])


class DecisionForm(forms.Form):
    """Which content counts under a key, and why; `seen` are the contents that were on the page."""

    choice = forms.ChoiceField(label="What counts", widget=forms.RadioSelect)
    reason = forms.CharField(
        max_length=300,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Finance and the auditor read this; it goes into the evidence of the report.",
    )
    seen = forms.CharField(max_length=20_000, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, contents: Sequence[Content]) -> None:
        super().__init__(data, initial={"seen": ",".join(c.event.content for c in contents)})
        choice = cast(forms.ChoiceField, self.fields["choice"])
        choice.choices = [
            (
                content.choice,
                f"{content.event.samples:,} samples of {content.event.model} on "
                f"{content.event.system}, {instant(content.event.occurred_at)}"
                f" ({'stored first' if content.line is None else 'came later'})",
            )
            for content in contents
        ]


def _defaults(actor: Membership, now: datetime, named: Mapping[str, Any]) -> dict[str, Any]:
    """Range and zone of the newest usage: its billing period, else its month."""
    newest = selectors.usage_newest(actor=actor, now=now) or now
    inside = selectors.period_list(actor=actor).filter(starts_at__lte=newest, ends_at__gt=newest)
    period = inside.first()
    zone = named.get("zone") or (period.zone if period else _zone(actor))
    try:
        tz = check_zone(zone)
    except Refusal:
        # The field says what is wrong with it; the days need some zone until then.
        tz = check_zone("UTC")
    month = Period.month_of(newest, tz.key)
    start, end = (period.starts_at, period.ends_at) if period else (month.start, month.end)
    return {
        "start": start.astimezone(tz).date().isoformat(),
        "end": end.astimezone(tz).date().isoformat(),
        "zone": zone,
    }


def _zone(actor: Membership) -> str:
    """The zone of the newest contract, UTC without one."""
    newest = contract_list(actor=actor).order_by("-created_at").first()
    return str(newest.contract["zone"]) if newest else "UTC"
