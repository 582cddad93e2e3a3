"""Routes of usage, savings, invoices and the journal."""

from django.urls import path

from portal.billing import views
from portal.billing import views_audit as audits
from portal.billing import views_close as close
from portal.billing import views_conflicts as conflicts
from portal.billing import views_disputes as disputes
from portal.billing import views_explorer as explorer
from portal.billing import views_periods as periods
from portal.billing import views_sandbox as assumed
from portal.billing import views_usage as usage

app_name = "billing"
urlpatterns = [
    path("usage/", explorer.explorer, name="usage"),
    path("usage/events/", explorer.events, name="usage-events"),
    path("usage/events/<int:event_id>/", conflicts.event, name="usage-event"),
    path("usage/events/<int:event_id>/decide/", conflicts.decide, name="usage-decide"),
    path("usage/parked/", explorer.parked, name="usage-parked"),
    path("usage/parked/<int:line_id>/", conflicts.line, name="usage-line"),
    path("usage/parked/<int:line_id>/again/", conflicts.send_again, name="usage-send-again"),
    path("usage/deliveries/", usage.batches, name="usage-batches"),
    path("usage/deliveries/<uuid:batch_id>/", usage.batch, name="usage-batch"),
    path("savings/", usage.savings_list, name="savings-list"),
    path("savings/<uuid:savings_id>/", usage.savings, name="savings"),
    path("savings/<uuid:savings_id>/savings.csv", usage.savings_csv, name="savings-csv"),
    path("invoices/", views.invoices, name="invoices"),
    path("invoices/<uuid:invoice_id>/", views.invoice, name="invoice"),
    path("invoices/<uuid:invoice_id>/lines.csv", views.invoice_lines, name="invoice-lines"),
    path(
        "invoices/<uuid:invoice_id>/waterfall.csv",
        views.invoice_waterfall,
        name="invoice-waterfall-csv",
    ),
    path("invoices/<uuid:invoice_id>/exports/", views.invoice_exports, name="invoice-exports"),
    path("invoices/<uuid:invoice_id>/dispute/", disputes.dispute_new, name="dispute-new"),
    path("invoices/<uuid:invoice_id>/disputes/", disputes.dispute_open, name="dispute-open"),
    path("invoices/<uuid:invoice_id>/credit/", disputes.credit_new, name="credit-new"),
    path("invoices/<uuid:invoice_id>/credit-notes/", disputes.credit, name="credit"),
    path("invoices/<uuid:invoice_id>/sandbox/", assumed.sandbox, name="sandbox"),
    path("invoices/<uuid:invoice_id>/audit/", audits.audit, name="audit"),
    path("invoices/<uuid:invoice_id>/settlement/", audits.audit_confirm, name="audit-confirm"),
    path("disputes/", disputes.disputes, name="disputes"),
    path("disputes/<uuid:dispute_id>/", disputes.dispute, name="dispute"),
    path("disputes/<uuid:dispute_id>/release/", disputes.dispute_release, name="dispute-release"),
    path("journal/", views.journal, name="journal"),
    path("trial-balance/", close.trial_balance, name="trial-balance"),
    path("periods/", periods.periods, name="periods"),
    path("periods/open/", periods.period_open, name="period-open"),
    path("periods/<uuid:period_id>/", periods.period, name="period"),
    path("periods/<uuid:period_id>/bill/", periods.period_bill, name="period-bill"),
    path("periods/<uuid:period_id>/job/", periods.period_job, name="period-job"),
    path(
        "periods/<uuid:period_id>/job/status/",
        periods.period_job_status,
        name="period-job-status",
    ),
    path("periods/<uuid:period_id>/checks/", close.checks, name="period-checks"),
    path("periods/<uuid:period_id>/close/", close.period_close, name="period-close"),
    path("periods/<uuid:period_id>/totals/", close.reconciliation, name="reconciliation"),
    path("periods/<uuid:period_id>/<str:name>.csv", close.period_csv, name="period-csv"),
    path("periods/<uuid:period_id>/exports.zip", close.period_zip, name="period-exports"),
]
