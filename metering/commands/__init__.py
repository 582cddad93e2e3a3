"""The command line of this room, one module per half: ``measure`` and ``money``.

In: parsed arguments. Out: text or JSON on standard output, and an exit status: 0 done, 1 the answer
is no, 2 wrong use. No formula lives here.
"""
