"""Routes of systems and model mixes."""

from django.urls import path

from portal.registry import views

app_name = "registry"
urlpatterns = [
    path("systems/", views.systems, name="systems"),
    path("systems/<uuid:system_id>/", views.system, name="system"),
    path("mixes/", views.mixes, name="mixes"),
    path("mixes/<uuid:mix_id>/", views.mix, name="mix"),
    path("mixes/<uuid:mix_id>/lengths.csv", views.mix_lengths, name="mix-lengths"),
]
