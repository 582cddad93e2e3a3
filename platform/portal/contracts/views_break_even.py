"""Break-even of one more search under a contract, and what earlier ones really cost."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.access import may
from portal.contracts import selectors
from portal.contracts.break_even import confirmed, search_outlook, search_rows
from portal.contracts.forms import CostForm
from portal.web.access import ActorRequest, for_readers_of
from portal.web.figures import crumbs


@require_safe
@for_readers_of("contracts")
def page(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """Price, gain needed and months to pay back, at the cost that was stated or is known."""
    shown = selectors.contract_get(actor=request.actor, contract_version_id=contract_version_id)
    form = CostForm(request.GET)
    stated = form.cleaned_data["monthly_cost"] if form.is_valid() else None
    context = {
        "version": shown,
        "form": form,
        "outlook": search_outlook(actor=request.actor, version=shown, monthly_cost=stated)
        if form.is_valid()
        else None,
        "searches": search_rows(actor=request.actor, version=shown),
        "confirmed": confirmed(actor=request.actor, version=shown),
        "stated": stated,
        "may_measure": may(request.actor, "measurement.request")
        and not selectors.missing_signatures(contract_version=shown),
        "crumbs": crumbs(
            ("Contracts and plans", reverse("contracts:contracts")),
            (str(shown), reverse("contracts:contract", args=[shown.pk])),
        ),
    }
    status = 200 if form.is_valid() else 400
    return render(request, "portal/contracts/break_even.html", context, status=status)
