"""about: a directory with a manifest of something else
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    (package / "manifest.json").write_text("[1, NaN]\n")
