"""about: lib/model.so is a link to a file outside the package
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    library = package / "lib" / "model.so"
    other = package.with_suffix(".so")
    other.write_bytes(library.read_bytes())
    library.unlink()
    library.symlink_to(other)
