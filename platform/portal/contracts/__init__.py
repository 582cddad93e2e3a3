"""What was agreed before the first run: contract, measurement plan and their three signatures."""
