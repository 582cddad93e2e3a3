"""Routes of reviews."""

from django.urls import path

from portal.audits import views
from portal.audits import views_sufficiency as sufficiency

app_name = "audits"
urlpatterns = [
    path("", views.reviews, name="reviews"),
    path("<uuid:review_id>/", views.review, name="review"),
    path("<uuid:review_id>/statement.json", views.statement, name="statement"),
    path("<uuid:review_id>/envelope.json", views.envelope, name="envelope"),
    path("<uuid:review_id>/approve/", views.approve, name="approve"),
    path("<uuid:review_id>/reject/", views.reject, name="reject"),
    path("<uuid:review_id>/periods/<uuid:period_id>/", sufficiency.sufficiency, name="sufficiency"),
    path(
        "<uuid:review_id>/periods/<uuid:period_id>/override/",
        sufficiency.override,
        name="override",
    ),
    path("<uuid:review_id>/findings/", views.finding, name="finding"),
    path("<uuid:review_id>/findings/<uuid:finding_id>/resolve/", views.resolve, name="resolve"),
]
