"""Stored files, issued reports, the transparency log, and who downloaded what."""
