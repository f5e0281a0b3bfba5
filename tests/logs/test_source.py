from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from syncline.diagnosis import diagnose
from syncline.finding import Severity
from syncline.logs.source import Sources

LINE = "n1:1:2 [0] init.cc:795 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000\n"


def rules(*paths: Path | str) -> list[str]:
    return [finding.rule for finding in diagnose(list(paths)).findings]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"])
def test_packed_logs_are_read_by_content_not_by_name(tmp_path: Path, pack) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(LINE.encode()))
    assert rules(path) == ["nccl.gpu.duplicate"]


def test_a_truncated_gzip_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    text = LINE + "".join(f"line {i} {os.urandom(40).hex()}\n" for i in range(20_000))
    path.write_bytes(gzip.compress(text.encode())[:-5000])
    diagnosis = diagnose([path])
    assert [f.rule for f in diagnosis.findings] == ["nccl.gpu.duplicate"]
    assert diagnosis.num_lines > 10_000
    assert [u.path for u in diagnosis.unread] == [str(path)]
    assert "the compressed file is cut off" in diagnosis.unread[0].reason


def test_a_broken_gzip_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(b"\x1f\x8b" + os.urandom(200))
    diagnosis = diagnose([path])
    assert diagnosis.findings == [] and len(diagnosis.unread) == 1
    path.write_bytes(gzip.compress(LINE.encode())[:8])
    assert [u.reason for u in diagnose([path]).unread] == ["stopped at the start: the compressed file is cut off"]


def test_zstd_without_a_reader_says_how(tmp_path: Path) -> None:
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    (unread,) = diagnose([path]).unread
    assert "zstd" in unread.reason or "stopped" in unread.reason


def test_binary_is_read_through(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(os.urandom(100_000) + b"\n" + LINE.encode() + os.urandom(100_000) + b"\x00" * 100_000)
    diagnosis = diagnose([path])
    assert "nccl.gpu.duplicate" in [f.rule for f in diagnosis.findings]
    assert diagnosis.num_bytes == 300_000 + 1 + len(LINE)


def test_folders_are_walked_and_links_that_lead_back_are_skipped(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "job.log").write_text(LINE)
    (inner / "again").symlink_to(tmp_path)
    (tmp_path / "same.log").symlink_to(inner / "job.log")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    diagnosis = diagnose([tmp_path])
    assert diagnosis.num_files == 1
    assert diagnosis.findings[0].observed == "two ranks share a GPU"
    assert [Path(u.path).name for u in diagnosis.unread] == ["nowhere"]


def test_a_missing_file_does_not_stop_the_others(tmp_path: Path) -> None:
    good = tmp_path / "good.log"
    good.write_text(LINE)
    diagnosis = diagnose([tmp_path / "missing", good])
    assert [f.rule for f in diagnosis.findings] == ["nccl.gpu.duplicate"]
    assert diagnosis.unread[0].reason == "No such file or directory"


def test_permission_denied_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, good = tmp_path / "secret.log", tmp_path / "z.log"
    secret.write_text(LINE)
    good.write_text(LINE)
    opened = Path.open

    def refuse(self: Path, *args, **kwargs):  # a root user is never refused, so the refusal is made here
        if self.name == "secret.log":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    diagnosis = diagnose([tmp_path])
    assert diagnosis.num_files == 1
    assert [(Path(u.path).name, u.reason) for u in diagnosis.unread] == [("secret.log", "Permission denied")]


def test_an_unreadable_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    assert diagnose([tmp_path]).unread[0].reason == "Permission denied"


def test_devices_and_sockets_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (unread,) = diagnose([tmp_path]).unread
    assert unread.reason == "not a file (a device or socket)"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(LINE.encode())))))
    diagnosis = diagnose(["-"])
    assert diagnosis.findings[0].evidence[0].startswith("stdin:1: n1:1:2")


def test_empty_files_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    diagnosis = diagnose([tmp_path])
    assert (diagnosis.num_files, diagnosis.num_lines, diagnosis.findings) == (1, 0, [])
    assert diagnosis.severity is Severity.UNKNOWN


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_what_windows_redirects_is_read(tmp_path: Path, encoding: str) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "job.log").write_bytes((mark + LINE.replace("\n", "\r\n")).encode(encoding))
    assert [finding.rule for finding in diagnose([tmp_path]).findings] == ["nccl.gpu.duplicate"]


def test_progress_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LINE)
    told: list[int] = []
    for _, blocks in Sources([tmp_path], on_bytes=told.append):
        list(blocks)
    assert sum(told) == len(LINE)


def test_a_line_of_100_MB_is_read_in_little_memory_and_nothing_on_it_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "one-line.log"
    other = "h:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>"
    with path.open("wb") as file:  # zeros in the middle take no room on the disk
        file.write(LINE.rstrip().encode())
        file.truncate(100_000_000)
        file.seek(0, os.SEEK_END)
        file.write(other.encode())
    tracemalloc.start()
    try:
        diagnosis = diagnose([path])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {finding.rule for finding in diagnosis.findings} == {"nccl.gpu.duplicate", "nccl.peer.closed"}
    assert (diagnosis.num_bytes, diagnosis.num_lines) == (100_000_000 + len(other), 1)
    assert peak_bytes < 32_000_000
