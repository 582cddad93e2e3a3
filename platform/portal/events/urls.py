"""Routes of the audit trail."""

from django.urls import path

from portal.events import views

app_name = "events"
urlpatterns = [path("", views.events, name="events")]
