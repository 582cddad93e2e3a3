"""about: files occurs twice in the manifest, the second one without the library
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    path = package / "manifest.json"
    text = path.read_text()
    path.write_text(text.rstrip().rstrip("}") + ', "operators": []}')
