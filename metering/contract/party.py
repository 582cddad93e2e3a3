"""The parties of a contract, as far as an invoice has to name them.

In: registered name, address and identifiers.
Out: a frozen record copied into every document, so that a later change of address never
reaches an issued one.
Never here: contact data of persons, credentials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metering.fields import Fields
from metering.refusal import Refusal

__all__ = ["Party"]

_OPTIONAL = (
    "tax_id", "registration_id", "street", "city", "postal_code", "endpoint", "endpoint_scheme",
)  # fmt: skip


@dataclass(frozen=True)
class Party:
    """A legal person. `country` is ISO 3166-1 alpha-2; `endpoint_scheme` an EAS code (0204, EM)."""

    party_id: str
    name: str
    country: str
    tax_id: str | None = None
    registration_id: str | None = None
    street: str | None = None
    city: str | None = None
    postal_code: str | None = None
    endpoint: str | None = None
    endpoint_scheme: str | None = None

    def __post_init__(self) -> None:
        for name in ("party_id", "name"):
            if not getattr(self, name):
                raise Refusal(f"party.{name}", "nothing", "text that is not empty")
        if not re.fullmatch(r"[A-Z]{2}", self.country):
            raise Refusal("party.country", repr(self.country), "two capital letters such as DE")
        if (self.endpoint is None) != (self.endpoint_scheme is None):
            raise Refusal("party.endpoint_scheme", self.endpoint_scheme, "one with each endpoint")

    def to_json(self) -> dict[str, object]:
        """JSON object without the fields that are not known."""
        known: dict[str, object] = {
            "party_id": self.party_id,
            "name": self.name,
            "country": self.country,
        }
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                known[name] = getattr(self, name)
        return known

    @classmethod
    def from_json(cls, value: object, where: str = "party") -> Party:
        """Inverse of `to_json`."""
        fields = Fields(value, where)
        party = cls(
            party_id=fields.text("party_id"),
            name=fields.text("name"),
            country=fields.text("country"),
            **{name: fields.optional_text(name) for name in _OPTIONAL},
        )
        fields.finish()
        return party
