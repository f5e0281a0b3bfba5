"""Capture a host: a folder or archive with what an audit reads, so that the audit can be run elsewhere.

    summary = capture(Root.live(), Path("h3.tar.gz"))

A capture is what the rules read and nothing else: the audit runs first, and its reads are written down, after the
filters of `privacy`. The manifest says what is in it, what was filtered and what could not be read.
"""

from __future__ import annotations

import io
import json
import os.path
import posixpath
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import syncline
from syncline.auditing.audit import audit
from syncline.auditing.discover import discover_quietly
from syncline.auditing.report import REPORT, HostReport
from syncline.describe.plain import JsonObject
from syncline.errors import FileError
from syncline.host.host import Host
from syncline.host.privacy import COMMAND_FILTERS, FILE_FILTERS
from syncline.host.root import NOTES, RESAMPLE_S, Root
from syncline.host.tree import PathKind

SCHEMA = "syncline-capture/1"
_LIBRARIES = ("libnccl", "libibverbs", "librdmacm", "libc.so", "libcuda.so", "libnccl-net")
HELD = (
    "files of sysfs and procfs about PCI devices, network interfaces, RDMA devices, processors, limits and clocks",
    "names (not contents) of libraries, of RDMA device files and of kernel modules",
    "outputs of read-only commands: ip, tc, ethtool, nvidia-smi, ibv_devinfo, mlnx_qos, dcb, chronyc, systemctl, ...",
    "kernel log lines about network, GPUs, PCIe and memory, at most 2,000",
    "names and addresses of hosts: /etc/hosts and /etc/resolv.conf without comments, the order of name sources, what "
    "getent answers for this host and for the job's others",
    "environment variables of NCCL, Gloo, UCX, libfabric and launchers, by an allow list",
)
NOT_HELD = (
    "other environment variables, and any whose name holds KEY, TOKEN, SECRET, PASS or the like",
    "command lines, processes and files of users",
    "keys, certificates, home folders",
    "kernel command line options that no rule reads",
    "serial numbers and ids of GPUs",
)
CONTENTS: JsonObject = {"holds": list(HELD), "holds_not": list(NOT_HELD)}


@dataclass(frozen=True)
class CaptureSummary:
    """What was captured and where it is."""

    path: Path
    host: str
    num_files: int
    num_commands: int
    size_bytes: int
    unreadable: dict[str, str]

    def to_json(self) -> JsonObject:
        """Return the summary as plain values."""
        counts = {"files": self.num_files, "commands": self.num_commands, "size_bytes": self.size_bytes}
        return {"written": str(self.path), "host": self.host, **counts, "unreadable": self.unreadable, **CONTENTS}


def capture(root: Root, path: Path) -> CaptureSummary:
    """Read all that the rules and discovery read, and write it to a new folder or a .tar.gz."""
    archive = path.name.endswith((".tar.gz", ".tgz", ".tar"))
    _check_new(path, archive)
    report = audit(root)
    discover_quietly(Host(root))
    entries, links = _entries(root, report), _links(root)
    if archive:
        _write_archive(path, report.host, entries, links)
        size = path.stat().st_size
    else:
        _write_folder(path, entries, links)
        size = sum(map(len, entries.values()))
    return CaptureSummary(path, report.host, len(root.files), len(root.outputs), size, dict(root.problems))


def _check_new(path: Path, archive: bool) -> None:
    if path.exists() and (archive or not path.is_dir() or any(path.iterdir())):
        raise FileError(f'"{path}" exists.', hint="Name a new folder, or a new .tar.gz file.")
    if not path.absolute().parent.is_dir():
        raise FileError(f'there is no folder "{path.absolute().parent}".', hint="Make it first.")


def _entries(root: Root, report: HostReport) -> dict[str, bytes]:
    own = tuple(f"{NOTES}/{name}" for name in ("manifest.json", "environment", "commands", "report.json"))
    entries = {name: data for name, data in root.files.items() if not name.startswith(own)}
    listed = [(f"{folder}/{name}", name) for folder, names in root.listings.items() for name in names]
    for path, name in listed:
        # What was listed but not read is there by name only: libraries, device files.
        if path.startswith("usr/") and not name.startswith(_LIBRARIES):
            continue
        if path not in entries and root.tree.kind(path) in (PathKind.FILE, PathKind.OTHER):
            entries[path] = b""
    _keep_folders(entries, [*root.present, *(path for path, _ in listed)], root)
    for name, (_, text) in root.outputs.items():
        entries[f"{NOTES}/commands/{name}"] = text.encode()
    for name, data in root.later.items():
        entries[f"{NOTES}/later/{name}"] = data
    variables = "".join(f"{name}={value}\n" for name, value in root.environment().items())
    entries[f"{NOTES}/environment"] = variables.encode()
    entries[f"{NOTES}/report.json"] = REPORT.dump_json(report, indent=1)
    manifest = {
        "schema": SCHEMA,
        "syncline": syncline.__version__,
        "host": report.host,
        "captured_s": round(time.time()),
        **CONTENTS,
        "filtered": sorted([*FILE_FILTERS, *(f"{name} (command)" for name in COMMAND_FILTERS)]),
        "commands": {name: " ".join(argv) for name, (argv, _) in root.outputs.items()},
        "later_s": RESAMPLE_S,
        "unreadable": root.problems,
    }
    entries[f"{NOTES}/manifest.json"] = json.dumps(manifest, indent=1).encode()
    return entries


def _keep_folders(entries: dict[str, bytes], paths: list[str], root: Root) -> None:
    """Keep folders of which only the name was looked at, by an empty file inside."""
    parents = {folder for name in (*entries, *root.links) for folder in _above(name)}
    for path in paths:
        kind = root.tree.kind(path)
        if kind is PathKind.FOLDER and path not in parents and path:
            entries[f"{path}/.folder"] = b""
        elif kind in (PathKind.FILE, PathKind.OTHER) and not path.startswith("usr/"):
            entries.setdefault(path, b"")


def _above(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _links(root: Root) -> dict[str, str]:
    """Return links as relative ones that stay inside the tree, wherever it is put."""
    found = {}
    for path, target in root.links.items():
        folder = posixpath.dirname(path)
        full = posixpath.normpath(target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target))
        if not full.startswith(".."):
            found[path] = posixpath.relpath(full, folder or ".")
    return found


def _write_folder(path: Path, entries: dict[str, bytes], links: dict[str, str]) -> None:
    try:
        path.mkdir(exist_ok=True)
        for name, data in entries.items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        for name, target in links.items():
            link = path / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists() and not link.is_symlink():
                link.symlink_to(target)
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror}.', hint="Name a folder you may write to.") from None


def _write_archive(path: Path, host: str, entries: dict[str, bytes], links: dict[str, str]) -> None:
    top = f"syncline-{host}".replace("/", "-")
    mode = "w" if path.name.endswith(".tar") else "w:gz"
    try:
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
                for name, data in sorted(entries.items()):
                    member = tarfile.TarInfo(f"{top}/{name}")
                    member.size, member.mode, member.mtime = len(data), 0o644, int(time.time())
                    archive.addfile(member, io.BytesIO(data))
                for name, target in sorted(links.items()):
                    member = tarfile.TarInfo(f"{top}/{name}")
                    member.type, member.linkname = tarfile.SYMTYPE, target
                    archive.addfile(member)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror}.', hint="Name a file you may write.") from None
