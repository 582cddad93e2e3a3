"""Routes of downloads."""

from django.urls import path

from portal.documents import views

app_name = "documents"
urlpatterns = [
    path("", views.files, name="files"),
    path("log/", views.downloads, name="downloads"),
    path("reports/<uuid:report_id>/", views.report, name="report"),
    path("<uuid:file_id>/", views.download, name="download"),
]
