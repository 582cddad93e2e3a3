"""Files: whole or not there, inside the home, cleared when a killed process left them."""

import pytest

from portal.workspace import WorkspaceError, absolute, relative, remove_stale, write


def test_write_replaces_in_one_step(home):
    path = home / "a" / "b.txt"
    write(path, b"first")
    write(path, b"second", mode=0o600)
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["b.txt"]


def test_failed_write_leaves_the_old_file(home, monkeypatch):
    path = home / "b.txt"
    write(path, b"first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("portal.workspace.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, b"second")
    assert path.read_bytes() == b"first"


def test_stored_paths_stay_inside(home):
    assert absolute(relative(home / "x" / "y")) == (home / "x" / "y").resolve()
    for stored in ("../outside", "/etc/passwd", "a/../../b"):
        with pytest.raises(WorkspaceError):
            absolute(stored)
    with pytest.raises(WorkspaceError):
        relative(home.parent / "elsewhere")


def test_link_that_leads_outside_is_refused(home):
    (home / "link").symlink_to("/etc")
    with pytest.raises(WorkspaceError):
        absolute("link/passwd")


def test_stale_names_go_and_locks_stay(home):
    for name in ("a/x.json.123.tmp", "a/.pkg.abc/lib.so", "evidence.tmp/b", ".lock", "a/kept.json"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert sorted(remove_stale(home)) == [".pkg.abc", "evidence.tmp", "x.json.123.tmp"]
    assert sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file()) == [
        ".lock",
        "a/kept.json",
    ]
