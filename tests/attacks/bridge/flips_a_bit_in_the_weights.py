"""about: one bit of weights.bin changed
expect: package_refused
"""

from pathlib import Path


def tamper(package: Path) -> None:
    path = package / "weights.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
