"""about: the package as it was built
expect: accepted
"""

from pathlib import Path


def tamper(package: Path) -> None:
    assert package.is_dir()
