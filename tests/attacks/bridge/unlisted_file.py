"""about: a file the manifest does not know
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    (package / "src" / "extra.c").write_text("int extra;\n")
