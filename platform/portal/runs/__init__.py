"""Long work: jobs with leases, baselines, tunings, kernel packages, measurements."""
