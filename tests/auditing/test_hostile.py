"""Trees that fight back: loops, denied reads, junk, huge files, links out of the tree, nothing at all."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.auditing.samples import HOSTS

from syncline.auditing.audit import audit
from syncline.auditing.checks import RULES
from syncline.errors import FileError
from syncline.finding import Severity
from syncline.host.root import MAX_FILE_BYTES, Root
from syncline.host.tree import DeniedFile, Entry, MemoryTree, SymbolicLink, open_tree

DGX = HOSTS["dgx-h100"]().tree().entries


def accounted(entries: dict[str, Entry]) -> None:
    """Every rule ends as passed, found, unknown or not applicable: none is lost."""
    report = audit(Root.of(MemoryTree(entries)))
    told = {f.rule for f in report.findings} | set(report.passed) | {r for ids in report.skipped.values() for r in ids}
    assert told == set(RULES)


def test_nothing_at_all() -> None:
    accounted({})
    report = audit(Root.of(MemoryTree({})))
    assert report.host == "host"
    assert report.status is Severity.UNKNOWN
    assert "time.source" in {f.rule for f in report.findings if f.severity is Severity.UNKNOWN}


def test_permission_denied_everywhere_is_told_and_never_fine() -> None:
    entries: dict[str, Entry] = {p: e if isinstance(e, SymbolicLink) else DeniedFile() for p, e in DGX.items()}
    report = audit(Root.of(MemoryTree(entries)))
    accounted(entries)
    assert len(report.unreadable) > 300
    assert report.status is Severity.UNKNOWN or report.status is Severity.WARNING
    assert all("ermission denied" in reason for path, reason in report.unreadable.items() if path.startswith("sys/"))
    unknown = {f.rule for f in report.findings if f.severity is Severity.UNKNOWN}
    assert {"limits.files", "time.source", "pcie.link.width"} <= unknown


def test_one_denied_file_is_named_where_it_matters() -> None:
    entries = dict(DGX)
    path = next(p for p in entries if p.endswith("mlx5_4/ports/1/state"))
    entries[path] = DeniedFile()
    report = audit(Root.of(MemoryTree(entries)))
    (told,) = [f for f in report.findings if f.rule == "rdma.port.down"]
    assert told.severity is Severity.UNKNOWN
    assert told.observed == "sys/class/infiniband/mlx5_4/ports/1/state: permission denied"
    assert told.fix.startswith("Run the audit as root")


def test_loops_and_links_out_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("do not read me")
    tree = tmp_path / "tree"
    (tree / "sys/class/net").mkdir(parents=True)
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "sys/class/net/a").symlink_to("b")
    (tree / "sys/class/net/b").symlink_to("a")
    (tree / "sys/class/infiniband").symlink_to("../class")
    (tree / "proc/sys/kernel/hostname").symlink_to("../../../../../secret")
    (tree / "etc").symlink_to(tmp_path)
    os.mkfifo(tree / "proc/cpuinfo")
    root = Root.captured(tree)
    report = audit(root)
    assert root.text("sys/class/net/a/mtu") is None
    assert root.problems["sys/class/net/a/mtu"] == "its links lead in a circle"
    assert root.text("proc/sys/kernel/hostname") is None  # `..` stops at the tree's own root
    assert root.text("etc/secret") is None  # an absolute link starts at the tree's own root
    assert "do not read me" not in str(root.files)
    assert report.unreadable["proc/cpuinfo"] == "is a pipe, socket or device, not a file"


def test_huge_files_are_cut_and_that_is_told(tmp_path: Path) -> None:
    big = tmp_path / "proc/net"
    big.mkdir(parents=True)
    with open(big / "snmp", "wb") as file:
        file.truncate(10 * 2**30)  # a file of 10 GiB that takes no room
    root = Root.captured(tmp_path)
    assert len(root.data("proc/net/snmp") or b"") == MAX_FILE_BYTES
    assert "only that much was read" in root.problems["proc/net/snmp"]


@pytest.mark.parametrize("seed", range(8))
def test_binary_junk_in_every_second_file(seed: int) -> None:
    rng = random.Random(seed)
    junk = {
        p: rng.randbytes(rng.choice((0, 1, 7, 300)))
        for p, e in DGX.items()
        if isinstance(e, bytes) and rng.random() < 0.5
    }
    accounted(DGX | junk)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(sorted(DGX)),
        st.one_of(st.binary(max_size=40), st.text(max_size=20).map(SymbolicLink), st.just(DeniedFile())),
    )
)
def test_any_change_of_any_files_is_survived(changes: dict[str, Entry]) -> None:
    accounted(DGX | changes)


def test_an_archive_cannot_write_or_hide_anything(tmp_path: Path) -> None:
    path = tmp_path / "bad.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("../../escaped", "/absolute", "top/proc/sys/kernel/hostname"):
            member = tarfile.TarInfo(name)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"h9"))
        link = tarfile.TarInfo("top/sys")
        link.type, link.linkname = tarfile.SYMTYPE, "/proc"
        archive.addfile(link)
    tree = open_tree(path)
    assert tree.kind("absolute") is not None
    assert not (tmp_path.parent / "escaped").exists()
    assert sorted(os.listdir(tmp_path)) == ["bad.tar"]


def test_what_is_no_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no"):
        open_tree(tmp_path / "missing")
    (tmp_path / "junk.tar.gz").write_bytes(b"\x1f\x8b junk")
    with pytest.raises(FileError, match="neither a folder nor an archive"):
        open_tree(tmp_path / "junk.tar.gz")
