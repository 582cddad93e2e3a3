"""The columns of each FOCUS version, as a map over one row model.

In: nothing.
Out: per version, the columns of a file in order, the key of the row model each one shows, and
which of them the version makes mandatory.
Never here: a value. A version is a map: a new one needs no new row.

Names: FOCUS 1.2 (June 2025) has ProviderName and PublisherName; 1.3 replaced them by
ServiceProviderName and HostProviderName, and 1.4 dropped the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "CHARGE_CATEGORIES",
    "DECIMAL_KEYS",
    "FOCUS",
    "INSTANT_KEYS",
    "MONEY_KEYS",
    "FocusVersion",
]

CHARGE_CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
MONEY_KEYS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "x_InvoicePayable")
DECIMAL_KEYS = (
    "ConsumedQuantity", "PricingQuantity", "x_CounterfactualCost", "x_SavingsLCB95",
    "x_SavingsPoint",
)  # fmt: skip
INSTANT_KEYS = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")

_MANDATORY = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency",
    "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit",
    "ServiceCategory", "ServiceName",
)  # fmt: skip
_FURTHER = (
    "BillingAccountType", "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "InvoiceId",
    "ResourceId", "ResourceName", "ServiceSubcategory",
)  # fmt: skip
_OURS = (
    "x_BaselineId", "x_ContractId", "x_CorrectsInvoiceId", "x_CounterfactualCost",
    "x_DocumentSha256", "x_EvidenceBundleSha256", "x_InvoicePayable", "x_LineId",
    "x_MethodVersion", "x_SavingsLCB95", "x_SavingsPoint", "x_UpliftId",
)  # fmt: skip


@dataclass(frozen=True)
class FocusVersion:
    """`columns`: name in the file -> key of the row model, in the order of the file."""

    version: str
    mandatory: tuple[str, ...]
    columns: Mapping[str, str]

    @property
    def format(self) -> str:
        """Name of the export format, as manifests and findings write it."""
        return f"focus-{self.version}"


def _version(
    version: str, mandatory: Mapping[str, str], further: tuple[str, ...] = ()
) -> FocusVersion:
    known = {name: name for name in _MANDATORY} | dict(mandatory)
    needed = tuple(sorted(known))
    columns = {name: known[name] for name in needed}
    columns |= {name: name for name in (*sorted((*_FURTHER, *further)), *_OURS)}
    return FocusVersion(version, needed, columns)


FOCUS: Mapping[str, FocusVersion] = {
    made.version: made
    for made in (
        _version("1.2", {"ProviderName": "Provider", "PublisherName": "Provider"}),
        # The kernels run on the customer's hardware: who hosts it is not ours to say (null).
        _version(
            "1.4",
            {"ServiceProviderName": "Provider", "HostProviderName": "Host"},
            further=("InvoiceDetailId",),
        ),
    )
}
