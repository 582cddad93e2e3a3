"""about: reading the manifest would never end
expect: package_refused
"""

import os
from pathlib import Path


def tamper(package: Path) -> None:
    (package / "manifest.json").unlink()
    os.mkfifo(package / "manifest.json")
