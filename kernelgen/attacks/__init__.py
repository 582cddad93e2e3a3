"""The judge on trial: every known cheat must be caught, every honest kernel accepted.

In: fixtures, one file each, from `tests/attacks` of a checkout: kernels, replies of a language
model, changes to a package. Out: a `Report`.
Never here: a judge of its own; fixtures meet the same judge as every candidate.
"""

from kernelgen.attacks.fixtures import Case, FixtureError
from kernelgen.attacks.suite import Report, Result, discover, run_all

__all__ = ["Case", "FixtureError", "Report", "Result", "discover", "run_all"]
