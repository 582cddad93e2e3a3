"""Settings: `base` holds all of it, `embedded` is the default, `test` is for pytest."""
