"""Contract versions with their plans: every term in words, who signed, what is signed."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import may
from portal.contracts import selectors, services
from portal.contracts.agreement import AgreementError, signed_bytes
from portal.contracts.forms import SignatureForm
from portal.contracts.models import ContractVersion, Party
from portal.contracts.tables import ContractTable
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.answers import attachment
from portal.web.figures import crumbs
from portal.web.lists import list_page
from portal.web.wording import contract_rows, plan_rows


@require_safe
@for_readers_of("contracts")
def contracts(request: ActorRequest) -> HttpResponse:
    """Every contract version."""
    return list_page(
        request,
        title="Contracts and plans",
        intro="A contract with its measurement plan is signed by provider, customer and auditor "
        "before the first run.",
        rows=selectors.contract_list(actor=request.actor),
        table=ContractTable,
        empty="Register a system, a model mix and a price book, then draft a contract through the "
        "API.",
    )


@require_safe
@for_readers_of("contracts")
def contract(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """One contract version."""
    shown = selectors.contract_get(actor=request.actor, contract_version_id=contract_version_id)
    return _page(request, shown, SignatureForm())


def _page(
    request: ActorRequest, shown: ContractVersion, form: SignatureForm, status: int = 200
) -> HttpResponse:
    missing = selectors.missing_signatures(contract_version=shown)
    role = str(request.actor.role)
    signed = {signature.party: signature for signature in shown.signatures.all()}
    context = {
        "version": shown,
        "contract_rows": contract_rows(shown.contract),
        "plan_rows": plan_rows(shown.plan),
        "parties": [(party, signed.get(party)) for party in Party.values],
        "missing": missing,
        "may_sign": may(request.actor, "plan.sign") and role in missing,
        "may_measure": may(request.actor, "measurement.request") and not missing,
        "form": form,
        "crumbs": crumbs(("Contracts and plans", reverse("contracts:contracts"))),
    }
    return render(request, "portal/contracts/contract.html", context, status=status)


@require_safe
@for_readers_of("contracts")
def agreement(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """The exact bytes that each party signs."""
    shown = selectors.contract_get(actor=request.actor, contract_version_id=contract_version_id)
    name = f"agreement-{shown.contract_id}-v{shown.version}.to-sign"
    return attachment(signed_bytes(shown), name, "application/octet-stream")


@require_POST
@for_doers_of("plan.sign")
def sign(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """Take the signature of the actor's own party."""
    shown = selectors.contract_get(actor=request.actor, contract_version_id=contract_version_id)
    form = SignatureForm(request.POST)
    if form.is_valid():
        given: dict[str, Any] = form.cleaned_data
        try:
            services.plan_sign(
                actor=request.actor, contract_version=shown, party=str(request.actor.role), **given
            )
        except AgreementError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "Your signature holds and is stored.")
            return redirect("contracts:contract", shown.pk)
    return _page(request, shown, form, status=400)
