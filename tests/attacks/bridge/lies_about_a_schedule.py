"""about: the label of an operator is another schedule than its source was made from
expect: package_refused
"""

import re
from pathlib import Path

from kernelgen.package.manifest import read_manifest, write_manifest


def tamper(package: Path) -> None:
    manifest = read_manifest(package)
    entry = next(one for one in manifest["operators"] if re.search(r"=\d", one["schedule"]))
    entry["schedule"] = re.sub(
        r"=(\d+)", lambda m: "=" + str(int(m.group(1)) + 1), entry["schedule"], count=1
    )
    write_manifest(package, manifest)
