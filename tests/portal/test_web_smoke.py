from tests.portal.web_data import build


def test_it(db, settings, tmp_path, client):
    settings.IGNITION_HOME = tmp_path
    stage = build(tmp_path)
    for who in ("owner", "auditor", "finance", "operator", "host", "outsider"):
        client.force_login(getattr(stage, who).user)
        for url in ("/", "/systems/", f"/systems/{stage.system.pk}/", f"/mixes/{stage.mix.pk}/", "/contracts/",
            f"/contracts/{stage.contract.pk}/", f"/contracts/{stage.draft.pk}/", "/baselines/", f"/baselines/{stage.baseline.pk}/",
            f"/searches/{stage.tuning.pk}/", f"/searches/{stage.tuning.pk}/trials/", f"/measurements/{stage.measurement.pk}/",
            f"/audits/{stage.open_review.pk}/", "/audits/", "/jobs/", f"/jobs/{stage.job.pk}/", "/billing/usage/", "/billing/savings/",
            f"/billing/savings/{stage.invoice.savings_id}/", f"/billing/invoices/{stage.invoice.pk}/", "/billing/journal/", "/billing/invoices/",
            "/downloads/", f"/downloads/reports/{stage.report.pk}/", "/downloads/log/", "/events/", f"/measurements/{stage.measurement.pk}/uplift/runs/uplift-p01-a0-base/",
            f"/baselines/{stage.baseline.pk}/runs/screen-00/", "/events/?format=csv"):
            r = client.get(url)
            print(who, r.status_code, url)
