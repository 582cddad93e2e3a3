"""The judge on trial: every known cheat must be caught, every honest kernel accepted.

In: fixtures, one C file each, from `tests/attacks` of a checkout. Out: a `Report`.
Never here: a judge of its own; fixtures meet the same judge as every candidate.
"""

from kernelgen.attacks.suite import Case, FixtureError, Report, Result, discover, run_all

__all__ = ["Case", "FixtureError", "Report", "Result", "discover", "run_all"]
