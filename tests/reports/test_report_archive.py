"""The container and the list: hostile zips (S1), one exact form, files and list both ways."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import struct
import subprocess
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import archive, manifest
from reports.errors import ReportError

FILES = {
    "SHA256SUMS": b"x\n",
    "evidence/plan.json": b"{}",
    "evidence/uplift/runs/a-1/mlperf_log_detail.txt": b"log\n" * 5,
    "report.pdf": bytes(range(0, 256, 8)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    for name, data in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    return made


@pytest.fixture
def bundle(folder: Path, tmp_path: Path) -> Path:
    archive.write(folder, tmp_path / "bundle.zip")
    return tmp_path / "bundle.zip"


def test_any_tool_reads_the_zip(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()} == FILES
    listed = subprocess.run(["zip", "-T", str(bundle)], capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout


def test_same_files_same_bytes_and_back_again(folder: Path, bundle: Path, tmp_path: Path) -> None:
    archive.write(folder, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    (tmp_path / "out").mkdir()
    assert archive.unpack(bundle, tmp_path / "out") == tuple(sorted(FILES))
    for name, data in FILES.items():
        assert (tmp_path / "out" / name).read_bytes() == data


def test_every_flipped_bit_of_the_container_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Names, dates, versions, attributes, checksums, offsets, contents: all of it."""
    good = bundle.read_bytes()
    out = tmp_path / "out"
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 1 << (place % 8)
        bundle.write_bytes(bytes(data))
        out.mkdir()
        with pytest.raises(ReportError):
            archive.unpack(bundle, out)
        shutil.rmtree(out)


@given(place=st.integers(0, 10_000), value=st.integers(1, 255), cut=st.booleans())
def test_no_damage_raises_anything_but_a_named_refusal(place: int, value: int, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        (base / "in").mkdir()
        (base / "in" / "a.txt").write_bytes(b"some text")
        archive.write(base / "in", base / "b.zip")
        data = bytearray((base / "b.zip").read_bytes())
        data[place % len(data)] ^= value
        changed = bytes(data[: place % len(data)]) if cut else bytes(data)
        (base / "b.zip").write_bytes(changed)
        (base / "out").mkdir()
        with pytest.raises(ReportError):
            archive.unpack(base / "b.zip", base / "out")


def hostile(*entries: tuple[zipfile.ZipInfo | str, bytes], method: int = 0) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as made:
        for entry, data in entries:
            made.writestr(entry, data, compress_type=method)
    return target.getvalue()


def linked(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def named(name: str) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    info.create_system = 3
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info, b"x"


def dated(name: str, year: int) -> tuple[zipfile.ZipInfo, bytes]:
    info, data = named(name)
    info.date_time = (year, 1, 1, 0, 0, 0)
    return info, data


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("../escape.txt", "traversal"),
        ("evidence/../../escape.txt", "traversal"),
        ("/etc/escape", "absolute"),
        ("C:escape.txt", "drive"),
        ("c:/escape.txt", "drive"),
        ("evidence\\escape.txt", "backslash"),
        ("..\\escape.txt", "backslash"),
        ("evidence//double", "not allowed"),
        ("evidence/./dot", "not allowed"),
        (".hidden", "not allowed"),
        ("-rf", "not allowed"),
        ("evidence/", "not allowed"),
        ("new\nline", "not allowed"),
        ("esc\x1b[2J", "not allowed"),
        ("caf\u00e9", "not allowed"),
        ("x" * 201, "200"),
    ],
)
def test_names_that_leave_or_mislead_are_refused(tmp_path: Path, name: str, word: str) -> None:
    """S1. The reason is named, nothing is written outside, and nothing at all is kept."""
    bundle = tmp_path / "deep" / "bundle.zip"
    bundle.parent.mkdir()
    bundle.write_bytes(hostile(named(name)))
    out = tmp_path / "deep" / "out"
    out.mkdir()
    with pytest.raises(ReportError, match=word):
        archive.unpack(bundle, out)
    assert not list(tmp_path.rglob("escape*"))
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (lambda: hostile((linked("evidence"), b"/etc")), "link"),
        (lambda: hostile(named("a"), named("b"), named("A")), "twice"),
        (lambda: hostile(named("a"), (named("a/b"))), "under another entry"),
        (lambda: hostile(named("a"), method=zipfile.ZIP_DEFLATED), "compressed"),
        (lambda: hostile(), "0 entries"),
        (lambda: b"PK\x05\x06" + bytes(18), "0 entries"),
        (lambda: b"", "zip"),
        (lambda: b"%PDF-1.7\n", "zip"),
        (lambda: b"%PDF-1.7\n" + hostile(named("a")), "one form"),
        (lambda: hostile(dated("a", 1981)), "one form"),
        (lambda: hostile(dated("a", 1980)) + b"trailing", "after its end"),
    ],
)
def test_hostile_containers_are_refused_by_name(
    tmp_path: Path, data: Callable[[], bytes], word: str
) -> None:
    (tmp_path / "bundle.zip").write_bytes(data())
    (tmp_path / "out").mkdir()
    with pytest.raises(ReportError, match=word):
        archive.unpack(tmp_path / "bundle.zip", tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    """Python reads the last one, other tools the first."""
    (tmp_path / "bundle.zip").write_bytes(hostile(named("a"), named("a")))
    (tmp_path / "out").mkdir()
    with pytest.raises(ReportError, match="twice"):
        archive.unpack(tmp_path / "bundle.zip", tmp_path / "out")


def test_a_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    """64 MiB of zeros in 64 KiB: refused from its headers, in little memory."""
    (tmp_path / "bundle.zip").write_bytes(
        hostile((named("zeros")[0], bytes(64 << 20)), method=zipfile.ZIP_DEFLATED)
    )
    (tmp_path / "out").mkdir()
    tracemalloc.start()
    with pytest.raises(ReportError, match="compressed"):
        archive.unpack(tmp_path / "bundle.zip", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_size_that_lies_is_refused(bundle: Path, tmp_path: Path) -> None:
    data = bundle.read_bytes()
    place = data.index(b"PK\x01\x02")
    lying = data[: place + 24] + struct.pack("<I", archive.MAX_ENTRY_BYTES + 1) + data[place + 28 :]
    bundle.write_bytes(lying)
    (tmp_path / "out").mkdir()
    with pytest.raises(ReportError, match="too big"):
        archive.unpack(bundle, tmp_path / "out")


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ENTRIES", 3)
    (tmp_path / "bundle.zip").write_bytes(hostile(*[named(f"n{i}") for i in range(4)]))
    (tmp_path / "out").mkdir()
    with pytest.raises(ReportError, match="4 entries"):
        archive.unpack(tmp_path / "bundle.zip", tmp_path / "out")


def test_links_in_the_staging_folder_are_refused(folder: Path) -> None:
    (folder / "evidence" / "link").symlink_to("/etc/passwd")
    with pytest.raises(ReportError, match="link"):
        archive.files_under(folder)


def sealed(folder: Path) -> dict[str, str]:
    (folder / "SHA256SUMS").unlink()
    (folder / "SHA256SUMS").write_bytes(manifest.build(folder))
    for name in manifest.UNLISTED[1:]:
        (folder / name).write_bytes(b"made over the list")
    return manifest.parse((folder / "SHA256SUMS").read_bytes())


def sha256sum(folder: Path) -> int:
    command = ["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def test_the_list_holds_with_sha256sum(folder: Path) -> None:
    digests = sealed(folder)
    assert digests["report.pdf"] == hashlib.sha256(FILES["report.pdf"]).hexdigest()
    manifest.require_same_files(digests, archive.files_under(folder))
    manifest.require_same_digests(digests, folder)
    assert sha256sum(folder) == 0


def test_changed_missing_and_unlisted_files_are_named(folder: Path) -> None:
    digests = sealed(folder)
    (folder / "extra.txt").write_bytes(b"nobody listed me")
    assert sha256sum(folder) == 0, "sha256sum alone does not see it"
    with pytest.raises(ReportError, match=r"not listed: extra\.txt"):
        manifest.require_same_files(digests, archive.files_under(folder))
    (folder / "extra.txt").unlink()
    (folder / "report.pdf").write_bytes(b"changed")
    assert sha256sum(folder) == 1
    with pytest.raises(ReportError, match=r"differ from SHA256SUMS: report\.pdf"):
        manifest.require_same_digests(digests, folder)
    (folder / "report.pdf").unlink()
    assert sha256sum(folder) == 1
    with pytest.raises(ReportError, match=r"missing: report\.pdf"):
        manifest.require_same_files(digests, archive.files_under(folder))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0" * 64 + b" report.pdf\n",
        b"0" * 64 + b"  ../report.pdf\n",
        b"0" * 64 + b"  a\n" + b"0" * 64 + b"  a\n",
        b"0" * 64 + b"  b\n" + b"0" * 64 + b"  a\n",
        b"0" * 64 + b"  a",
        b"0" * 64 + b"  a\r\n",
        b"0" * 64 + b"  SHA256SUMS.sig\n",
        b"# comment\n" + b"0" * 64 + b"  a\n",
        b"\xff" + b"0" * 64 + b"  a\n",
    ],
)
def test_a_list_in_any_other_form_is_refused(data: bytes) -> None:
    def read() -> None:
        names = tuple(sorted({"a", *manifest.UNLISTED}))
        manifest.require_same_files(manifest.parse(data), names)

    with pytest.raises(ReportError):
        read()
