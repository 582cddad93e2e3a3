"""How the stock stacks run each operator family: one file per family, named after it.

In: an operator and its sizes. Out: each module's `PEERS` (see `kernelgen.bench.family`). Every
formulation is the fastest known for its stack: fused nodes where the stack has them.
Never here: timing, or a formulation chosen because it is slow.
"""
