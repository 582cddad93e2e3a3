"""Reading a stranger's folder or archive: no link followed, nothing unpacked, limits kept."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from metering.__main__ import main
from metering.submission import SnapshotError, read, snapshot
from metering.submission.tree import NAME

SECRET = b"outside"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.mkdir()
    (path / "key").write_bytes(SECRET)
    return path


def link_to_file(root: Path, secret: Path) -> None:
    (root / "open" / "key").symlink_to(secret / "key")


def link_to_folder(root: Path, secret: Path) -> None:
    (root / "open" / "keys").symlink_to(secret)


def link_upwards(root: Path, secret: Path) -> None:
    (root / "open" / "loop").symlink_to("..")


def link_to_nothing(root: Path, secret: Path) -> None:
    (root / "open" / "gone").symlink_to("/nonexistent")


def second_name(root: Path, secret: Path) -> None:
    os.link(secret / "key", root / "open" / "key")


def pipe(root: Path, secret: Path) -> None:
    os.mkfifo(root / "open" / "pipe")


def odd_name(root: Path, secret: Path) -> None:
    (root / "open" / "a\n\x1b[31mb").write_bytes(b"x")


def hidden(root: Path, secret: Path) -> None:
    (root / "open" / ".git").mkdir()


def empty_folder(root: Path, secret: Path) -> None:
    (root / "open" / "results").mkdir()


def deep(root: Path, secret: Path) -> None:
    (root / "open" / "/".join("d" * 20)).mkdir(parents=True)


def huge(root: Path, secret: Path) -> None:
    with (root / "open" / "huge").open("wb") as stream:
        stream.truncate(2**40)


def many(root: Path, secret: Path) -> None:
    for number in range(snapshot.MOST_ENTRIES + 1):
        (root / "open" / f"f{number}").touch()


FOLDERS = [
    (link_to_file, "open/key", "a symbolic link"),
    (link_to_folder, "open/keys", "a symbolic link"),
    (link_upwards, "open/loop", "a symbolic link"),
    (link_to_nothing, "open/gone", "a symbolic link"),
    (second_name, "open/key", "hard link"),
    (pipe, "open/pipe", "neither a file nor a folder"),
    (odd_name, "open/a\\n\\x1b[31mb", "a name with characters"),
    (hidden, "open/.git", "a name with characters"),
    (empty_folder, "open/results", "an empty folder"),
    (deep, "open/" + "/".join("d" * 12), "deeper than"),
    (huge, "open/huge", "not read"),
    (many, "open/f", "more than 500 entries"),
]


@pytest.mark.parametrize(
    ("prepare", "place", "reason"), FOLDERS, ids=[row[0].__name__ for row in FOLDERS]
)
def test_a_folder_is_read_without_leaving_it(
    tmp_path: Path,
    secret: Path,
    prepare: Callable[[Path, Path], None],
    place: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "root"
    (root / "open").mkdir(parents=True)
    (root / "open" / "plain").write_bytes(b"inside")
    prepare(root, secret)
    found = read(root)
    assert any(f.path.startswith(place) and reason in f.reason for f in found.faults), found.faults
    assert SECRET not in found.files.values()
    assert main(["submission", "check", str(root)]) == 1
    told = capsys.readouterr().out
    assert reason in told
    assert "\x1b" not in told


def test_a_folder_with_no_files_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # inference#473: an empty folder passed the official check.
    assert main(["submission", "check", str(tmp_path)]) == 1
    assert ".: empty, no result at all" in capsys.readouterr().out


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    info.size = len(data)
    return info, data


ARCHIVES = [
    ("../up", member("../up"), "a path that leaves the archive"),
    ("open/../../up", member("open/../../up"), "a path that leaves the archive"),
    ("/absolute", member("/absolute"), "a path that leaves the archive"),
    ("open/.hidden", member("open/.hidden"), "a path that leaves the archive"),
    ("open/link", member("open/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
     "a link or a special file"),
    ("open/hard", member("open/hard", b"", type=tarfile.LNKTYPE, linkname="open/plain"),
     "a link or a special file"),
    ("open/null", member("open/null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
     "a link or a special file"),
    ("open/plain", member("open/plain", b"another"), "in the archive twice"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "extra", "reason"), ARCHIVES, ids=[row[0] + ": " + row[2] for row in ARCHIVES]
)
def test_an_archive_is_read_in_memory_and_unsafe_members_are_refused(
    tmp_path: Path, place: str, extra: tuple[tarfile.TarInfo, bytes], reason: str
) -> None:
    path = tmp_path / "folder.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for info, data in (member("open/plain", b"first"), extra):
            archive.addfile(info, io.BytesIO(data))
    before = set(tmp_path.rglob("*"))
    found = read(path)
    assert [(f.path, reason in f.reason) for f in found.faults] == [(place, True)]
    assert found.files == {"open/plain": b"first"}
    assert set(tmp_path.rglob("*")) == before
    assert main(["submission", "check", str(path)]) == 1


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_FILE_BYTES", 1000)
    path = tmp_path / "bomb.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name in ("open/bomb", "open/after"):
            info, data = member(name, bytes(100_000))
            archive.addfile(info, io.BytesIO(data))
    found = read(path)
    assert [(f.path, "not read" in f.reason) for f in found.faults] == [("open/bomb", True)]
    assert found.files == {}


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08" + bytes(20)])
def test_what_is_no_archive_is_wrong_use(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="not a whole tar archive"):
        read(path)
    assert main(["submission", "check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_torn_archive_is_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "torn.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info, data = member("open/file", os.urandom(50_000))
        archive.addfile(info, io.BytesIO(data))
    path.write_bytes(path.read_bytes()[:20_000])
    assert main(["submission", "check", str(path)]) == 2


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "-x", "a b", "x.", "é", "a\n", "a" * 65])
def test_names_that_are_no_plain_folder_name(name: str) -> None:
    assert NAME.fullmatch(name) is None
