"""Routes of usage, savings, invoices and the journal."""

from django.urls import path

from portal.billing import views
from portal.billing import views_usage as usage

app_name = "billing"
urlpatterns = [
    path("usage/", usage.batches, name="usage"),
    path("usage/<uuid:batch_id>/", usage.batch, name="usage-batch"),
    path("savings/", usage.savings_list, name="savings-list"),
    path("savings/<uuid:savings_id>/", usage.savings, name="savings"),
    path("savings/<uuid:savings_id>/savings.csv", usage.savings_csv, name="savings-csv"),
    path("invoices/", views.invoices, name="invoices"),
    path("invoices/<uuid:invoice_id>/", views.invoice, name="invoice"),
    path("invoices/<uuid:invoice_id>/lines.csv", views.invoice_lines, name="invoice-lines"),
    path("invoices/<uuid:invoice_id>/exports/", views.invoice_exports, name="invoice-exports"),
    path("journal/", views.journal, name="journal"),
]
