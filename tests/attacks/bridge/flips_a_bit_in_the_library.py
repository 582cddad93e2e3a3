"""about: one bit of lib/model.so changed
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    path = package / "lib/model.so"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
