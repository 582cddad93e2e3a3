"""The audit trail: one hash-chained row per change, written in the change's own transaction."""
