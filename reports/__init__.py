"""Reports: facts and evidence in, documents that a stranger can check out.

This room turns the facts of one measurement and one billing period into signed statements, a
signed PDF, a signed list of digests, an entry in a transparency log and one bundle; and it checks
such a bundle offline. It never measures, never decides a fee, and knows neither the web nor the
database. What it compares against is recomputed from the evidence by `metering`.
"""
