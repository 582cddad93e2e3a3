"""about: weights that run code when a careless reader unpickles them
expect: package_refused
"""

import pickle
from pathlib import Path

from kernelgen.package.build import digests
from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    (package / "weights.bin").write_bytes(pickle.dumps({"w": [1.0] * 100}))
    manifest = read_manifest(package)
    manifest["files"] = digests(package)
    write_manifest(package, manifest)
