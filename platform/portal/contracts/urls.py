"""Routes of contract versions and their plans."""

from django.urls import path

from portal.contracts import views
from portal.contracts import views_break_even as break_even

app_name = "contracts"
urlpatterns = [
    path("", views.contracts, name="contracts"),
    path("<uuid:contract_version_id>/", views.contract, name="contract"),
    path("<uuid:contract_version_id>/agreement.to-sign", views.agreement, name="agreement"),
    path("<uuid:contract_version_id>/break-even/", break_even.page, name="break-even"),
    path("<uuid:contract_version_id>/sign/", views.sign, name="sign"),
]
