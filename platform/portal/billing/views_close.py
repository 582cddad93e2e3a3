"""The close of a period: checklist, reconciliation, trial balance, its files in one archive."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST, require_safe

from metering.export import csv_text
from metering.ledger import Totals, differences
from portal.accounts.access import may
from portal.billing import closing, selectors
from portal.billing import reconciliation as books
from portal.billing.forms_periods import CloseForm
from portal.billing.models import BillingPeriod, PeriodClose, SavingsRecord
from portal.billing.period_archive import period_archive
from portal.billing.posting import invoices_of
from portal.billing.savings import BillingError
from portal.billing.tables import period_cell
from portal.billing.tables_periods import TrialTable
from portal.billing.views_periods import period_crumbs
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.answers import attachment
from portal.web.formats import money, number
from portal.web.lists import list_page
from portal.workspace import WorkspaceError

# Where a point of the checklist is looked up, by its name.
_PLACES = {
    "invoice": "billing:period", "disputes": "billing:period", "late": "billing:period",
    "journal": "billing:reconciliation", "exports": "billing:reconciliation",
    "validated": "billing:reconciliation",
}  # fmt: skip


@require_safe
@for_readers_of("billing")
def checks(request: ActorRequest, period_id: object) -> HttpResponse:
    """What must hold before a period is closed; once it is, what held then."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    return _checks(request, shown, CloseForm())


def _checks(
    request: ActorRequest, shown: BillingPeriod, form: CloseForm, status: int = 200
) -> HttpResponse:
    close = selectors.close_list(actor=request.actor).filter(period=shown).first()
    rows: list[dict[str, Any]] = (
        close.document["checks"]
        if close
        else [check.to_json() for check in closing.close_checks(shown)]
    )
    blocked = [row for row in rows if row["state"] == "not yet"]
    context = {
        "period": shown,
        "period_range": period_cell(shown),
        "close": close,
        "rows": [{**row, "url": _place(row["name"], shown)} for row in rows],
        "blocked": blocked,
        "form": form if may(request.actor, "period.close") and not close else None,
        "crumbs": period_crumbs(shown),
    }
    return render(request, "portal/billing/checks.html", context, status=status)


def _place(name: str, shown: BillingPeriod) -> str:
    if name == "usage":
        return reverse("billing:usage")
    return reverse(_PLACES[name], args=[shown.pk]) if name in _PLACES else ""


@require_POST
@for_doers_of("period.close")
def period_close(request: ActorRequest, period_id: object) -> HttpResponse:
    """Close a period; what is not met comes back with the checklist."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    form = CloseForm(request.POST)
    if form.is_valid():
        try:
            closing.period_close(actor=request.actor, period=shown, note=form.cleaned_data["note"])
        except closing.NoteMissingError as error:
            form.add_error("note", str(error))
        except BillingError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"{shown} is closed. Its totals are frozen.")
            return redirect("billing:reconciliation", shown.pk)
    return _checks(request, shown, form, status=400)


@require_safe
@for_readers_of("billing")
def reconciliation(request: ActorRequest, period_id: object) -> HttpResponse:
    """Totals counted anew beside the frozen ones and each export's manifest."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    close = selectors.close_list(actor=request.actor).filter(period=shown).first()
    documents = list(invoices_of(shown).select_related("period"))
    rows = _totals(shown, documents, close)
    trial = books.trial(shown)
    context = {
        "period": shown,
        "period_range": period_cell(shown),
        "close": close,
        "rows": rows,
        "agrees": not any(row["differences"] for row in rows),
        "exports": [_export(check) for check in books.export_checks(documents)],
        "documents": documents,
        "trial": trial,
        "trial_sums": _trial_sums(trial),
        "crumbs": period_crumbs(shown),
    }
    return render(request, "portal/billing/reconciliation.html", context)


def _totals(
    shown: BillingPeriod, documents: list[Any], close: PeriodClose | None
) -> list[dict[str, Any]]:
    """One row per set: frozen at the close (None before it), anew, and what differs."""
    anew = books.totals_of(shown, documents)
    frozen = (
        {name: Totals.from_json(value) for name, value in close.document["totals"].items()}
        if close
        else {}
    )
    savings = SavingsRecord.objects.filter(period=shown).first()
    billed = books.usage_billed(savings) if savings else None
    if billed is not None and not close:
        frozen[books.USAGE] = billed
    events = books.events_of(shown).count()
    if events <= books.RECOUNT_EVENTS:
        anew[books.USAGE] = books.usage_anew(shown)
    return [
        {
            "name": name,
            "title": books.TITLES[name],
            "frozen": _words(frozen.get(name)),
            "anew": _words(anew.get(name)),
            "events": events if name == books.USAGE else 0,
            "differences": differences(frozen[name], anew[name])
            if name in frozen and name in anew
            else (),
            "csv": name if name in anew and name != books.USAGE else "",
        }
        for name in books.TITLES
        if name in frozen or name in anew
    ]


def _words(totals: Totals | None) -> dict[str, Any] | None:
    if totals is None:
        return None
    sums = [
        f"{number(total)} samples" if unit == "samples" else money(total, unit)
        for unit, total in sorted(totals.sums.items())
    ]
    return {"rows": number(totals.rows), "sums": sums or ["0"], "sha256": totals.sha256}


def _export(check: books.ExportCheck) -> dict[str, Any]:
    row, manifest = check.export, check.manifest
    return {
        "invoice": row.invoice,
        "title": row.get_file_format_display(),
        "file": row.stored_file,
        "manifest": _words(Totals(manifest.rows, dict(manifest.sums), manifest.sha256)),
        "faults": check.faults,
    }


def _trial_sums(trial: Any) -> list[str]:
    sums: dict[str, Any] = {}
    for row in trial:
        sums[row.currency] = sums.get(row.currency, 0) + row.balance
    return [money(total, currency) for currency, total in sorted(sums.items())]


@require_safe
@for_readers_of("billing")
def period_csv(request: ActorRequest, period_id: object, name: str) -> HttpResponse:
    """One file of the books, the very bytes whose digest the close froze; or the trial balance."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    if name == "trial":
        rows = [
            [row.account, row.currency, str(row.entries), str(row.debit), str(row.credit),
             str(row.balance)]
            for row in books.trial(shown)
        ]  # fmt: skip
        text = csv_text(("account", "currency", "postings", "debit", "credit", "balance"),
                              rows)  # fmt: skip
    else:
        found = books.files_of(shown, list(invoices_of(shown).select_related("period")))
        if name not in found:
            raise Http404("no such file")
        text = found[name][0]
    file_name = f"{name}-{shown.contract_id}-{shown.label}.csv"
    return attachment(text.encode(), file_name, "text/csv; charset=utf-8")


@require_GET
@for_readers_of("billing")
def period_zip(request: ActorRequest, period_id: object) -> HttpResponse:
    """Every export of a period with a manifest; 409 when a stored file was changed."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    documents = list(invoices_of(shown).select_related("period"))
    try:
        data = period_archive(actor=request.actor, period=shown, documents=documents)
    except WorkspaceError as error:
        context = {
            "title": "A file does not match its digest",
            "what": str(error),
            "next": "Nothing was handed out. The reconciliation page names the file.",
        }
        return render(request, "portal/error.html", context, status=409)
    return attachment(data, f"{shown.contract_id}-{shown.label}.zip", "application/zip")


@require_safe
@for_readers_of("billing")
def trial_balance(request: ActorRequest) -> HttpResponse:
    """Debits, credits and balances per month of booking and account."""
    return list_page(
        request,
        title="Trial balance",
        intro="Sums of postings by the month they were booked in. A balance is never stored.",
        rows=books.monthly_trial(selectors.journal_list(actor=request.actor)),
        table=TrialTable,
        empty="The first issued invoice writes the first postings.",
    )
