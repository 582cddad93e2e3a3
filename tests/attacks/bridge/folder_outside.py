"""about: src is a link to a folder outside the package
expect: package_refused
"""

import shutil
from pathlib import Path


def tamper(package: Path) -> None:
    folder = package / "src"
    other = package.with_suffix(".src")
    shutil.move(folder, other)
    folder.symlink_to(other)
