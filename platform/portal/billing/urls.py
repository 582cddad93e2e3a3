"""Routes of usage, savings, invoices and the journal."""

from django.urls import path

from portal.billing import views
from portal.billing import views_disputes as disputes
from portal.billing import views_explorer as explorer
from portal.billing import views_usage as usage

app_name = "billing"
urlpatterns = [
    path("usage/", explorer.explorer, name="usage"),
    path("usage/events/", explorer.events, name="usage-events"),
    path("usage/events/<int:event_id>/", explorer.event, name="usage-event"),
    path("usage/parked/", explorer.parked, name="usage-parked"),
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
    path("disputes/", disputes.disputes, name="disputes"),
    path("disputes/<uuid:dispute_id>/", disputes.dispute, name="dispute"),
    path("disputes/<uuid:dispute_id>/release/", disputes.dispute_release, name="dispute-release"),
    path("journal/", views.journal, name="journal"),
]
