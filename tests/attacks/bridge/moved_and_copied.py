"""about: copied file by file to another place, as a mirror does
expect: accepted
"""

from pathlib import Path


def tamper(package: Path) -> None:
    for path in sorted(package.rglob("*")):
        if path.is_file():
            path.write_bytes(path.read_bytes())
