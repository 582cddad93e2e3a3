"""Systems that answer over HTTP: KServe v2 and OpenAI-compatible endpoints as stacks.

In: an address that an operator registered. Out: answers, or an :class:`EndpointError` whose
``kind`` names how it ended. The server is not trusted: every wait, size and shape has a limit, no
redirect is followed, no proxy of the environment is used, and every address is checked after it was
resolved and before it is connected to. What a server says of itself is recorded as its own claim.
"""
