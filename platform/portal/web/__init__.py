"""The portal's face: the shell around every page, and nothing that decides anything.

In: requests and what selectors return. Out: HTML, CSV and stored bytes. Never here: a write that is
not one call of a service, a figure that is not read from a stored record.
"""
