"""The demonstration: it plays the parties, and calls what they would call.

In: an empty or a used home. Out: one more month of the main job, told in nine steps. Everything
that counts happens in the services and jobs the portal uses; here are only the customer, the
auditor with own keys outside the portal's key store, finance, and the words on the terminal.
"""
