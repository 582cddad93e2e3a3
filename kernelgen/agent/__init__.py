"""The agent: proposes schedules, has them compiled and judged, keeps what wins, stops when the
budget is spent.

In: a model, a machine, traffic, a budget. Out: a `TuneResult`, trial records, a cost ledger.
Never here: a verdict of its own. Only `kernelgen.judge` says what is correct and what is faster.
"""
