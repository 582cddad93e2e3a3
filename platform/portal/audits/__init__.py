"""The independent look: auditors' public keys, reviews, findings, sign-off."""
