"""Routes of baselines, searches, measurements and jobs."""

from django.urls import path

from portal.runs import views
from portal.runs import views_jobs as jobs
from portal.runs import views_measurement as measurement
from portal.runs import views_registry as registry
from portal.runs import views_request as asking

app_name = "runs"
urlpatterns = [
    path("baselines/", views.baselines, name="baselines"),
    path("baselines/<uuid:baseline_id>/", views.baseline, name="baseline"),
    path("baselines/<uuid:baseline_id>/sweep.csv", views.baseline_sweep, name="baseline-sweep"),
    path(
        "baselines/<uuid:baseline_id>/runs/<str:run_id>/", views.baseline_run, name="baseline-run"
    ),
    path("baselines/<uuid:baseline_id>/registry/", registry.registry, name="registry"),
    path("baselines/<uuid:baseline_id>/registry.jsonl", registry.lines, name="registry-lines"),
    path("baselines/<uuid:baseline_id>/registry.csv", registry.table, name="registry-csv"),
    path("baselines/<uuid:baseline_id>/platform.pem", registry.key, name="registry-key"),
    path("baselines/<uuid:baseline_id>/remeasure/", registry.remeasure, name="remeasure"),
    path("searches/", views.tunings, name="tunings"),
    path("searches/<uuid:tuning_id>/", views.tuning, name="tuning"),
    path("searches/<uuid:tuning_id>/progress/", views.tuning_progress, name="tuning-progress"),
    path("searches/<uuid:tuning_id>/trials/", views.trials, name="trials"),
    path("measure/<uuid:contract_version_id>/", asking.request_page, name="measure-request"),
    path("measure/<uuid:contract_version_id>/ask/", asking.measure, name="measure"),
    path("measurements/", measurement.measurements, name="measurements"),
    path("measurements/<uuid:measurement_id>/", measurement.measurement, name="measurement"),
    path(
        "measurements/<uuid:measurement_id>/pairs.csv",
        measurement.measurement_pairs,
        name="measurement-pairs",
    ),
    path(
        "measurements/<uuid:measurement_id>/evidence.zip",
        measurement.measurement_evidence,
        name="measurement-evidence",
    ),
    path(
        "measurements/<uuid:measurement_id>/<str:part>/runs/<str:run_id>/",
        measurement.measurement_run,
        name="measurement-run",
    ),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("jobs/<uuid:job_id>/status/", jobs.job_status, name="job-status"),
    path("jobs/<uuid:job_id>/cancel/", jobs.job_cancel, name="job-cancel"),
]
