from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncline.describe.files import atomic, open_file
from syncline.errors import FileError


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    usual, new, kept = tmp_path / "usual", tmp_path / "new", tmp_path / "kept"
    usual.touch()
    kept.touch()
    kept.chmod(0o640)
    for path in (new, kept):
        with atomic(path) as file:
            file.write(b"x")
    assert new.stat().st_mode == usual.stat().st_mode
    assert kept.stat().st_mode & 0o777 == 0o640


def test_a_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.touch()
    link.symlink_to(real)
    with atomic(link) as file:
        file.write(b"x")
    assert link.is_symlink()
    assert real.read_bytes() == b"x"


def test_directories_and_devices_are_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, text in (
        (tmp_path, f'"{tmp_path}" is a directory.'),
        (fifo, f'"{fifo}" is not a regular file.'),
        (tmp_path / "no" / "x", f'cannot write "{tmp_path}/no/x": there is no folder "{tmp_path}/no".'),
    ):
        with pytest.raises(FileError) as caught, atomic(path):
            pass
        assert caught.value.message == text
    for path, text in (
        (tmp_path, f"{tmp_path}: is a directory.\n  Name a file in it."),
        (fifo, f"{fifo}: is not a regular file."),
        (tmp_path / "x", f"{tmp_path}/x: cannot be read: No such file or directory."),
    ):
        with pytest.raises(FileError) as caught:
            open_file(path)
        assert str(caught.value) == text


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(FileError) as caught, atomic(path):
        raise OSError(28, "No space left on device")
    assert caught.value.message == f'cannot write "{path}": No space left on device.'
    assert path.read_bytes() == b"old"
