"""Reads of contract versions and party keys; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership
from portal.contracts.models import ContractVersion, Party, PartyKey


def contract_list(*, actor: Membership) -> QuerySet[ContractVersion]:
    """Contract versions with system, mix, price book and signatures."""
    rows = ContractVersion.objects.select_related("system", "mix__model", "price_book")
    return scope(actor, rows.prefetch_related("signatures"), "contracts")


def contract_get(*, actor: Membership, contract_version_id: object) -> ContractVersion:
    """One of `contract_list`, or Http404."""
    return get_or_404(contract_list(actor=actor), contract_version_id)


def missing_signatures(*, contract_version: ContractVersion) -> list[str]:
    """The parties who have not signed yet, in the order provider, customer, auditor."""
    signed = {signature.party for signature in contract_version.signatures.all()}
    return [party for party in Party.values if party not in signed]


def party_key_list(*, actor: Membership) -> QuerySet[PartyKey]:
    """Registered keys for signing plans."""
    return scope(actor, PartyKey.objects.all(), "contracts")
