"""The host that a log comes from where its lines do not say: from its file's name or folder, or from pdsh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from syncline.describe import hostlist
from syncline.errors import SynclineError
from syncline.logs.form import form_of

_KINDS = re.compile(
    r"^(?:dmesg|kern|kernel|kmsg|syslog|messages|journal|journalctl|journald|ethtool|ibstat|ibstatus|ibv"
    r"|devinfo|iblinkinfo|nvidia|smi|nvidia-smi[\w-]*|dcgm|dcgmi|lspci|nccl|rccl|audit|netstat|ip|ipmi"
    r"|ipmitool|sel|sonic|frr|switch|counters|perfquery|mlxlink|showgids|rdma|link|topo|numa|log|logs"
    r"|txt|out|err|gz|xz|zst|bz2|json|current|boot|prev|old|stat|s|m|i|q|vv|vvv|module|info|tests|all"
    r"|reduce|perf|stats|console|serial|sysinfo|host|hosts|capture|report"
    r")$",
    re.IGNORECASE,
)
_NOT_A_HOST = re.compile(
    r"^(?:rank|job|run|step|slurm|train|log|test|attempt|epoch|exp|trial|output|std(?:out|err)|core|boot|iter|part|file|"
    r"v|pid|cuda|gpu_?id|eth|ib|bond|swp|mlx\d?_?|enp|ens|eno|port|pod|replica|task|worker_?id|20\d\d)[-_.]?\d*[\w-]*$",
    re.IGNORECASE,
)
_LIKE_A_HOST = re.compile(
    r"^(?:(?:gpu|node|host|cn|nid|dgx|hgx|compute|worker|srv|server|leaf|spine|tor|sw|switch)[-_]?[\w-]*|(?:n|c|r|ip|h|b|a)[-_]?)"
    r"\d[\w-]*$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[._]|(?<=[a-zA-Z])-(?=[a-z]+\d)|(?<=\d)-(?=[a-z])|^(?:dmesg|nccl)-")
_FOLDERS = 2
"""Folders above a file that are asked for a host's name: `gpu11/dmesg`, `gpu11/ethtool/eth0.txt`."""
_RULE = re.compile(r"^-{8,}$")
_PREFIX = re.compile(r"^([A-Za-z][A-Za-z0-9.-]{0,62}): ")


def host_of_file(path: str) -> str:
    """Return the host that a path names, as in `dmesg-gpu11.txt`, `gpu11/dmesg` or `gpu11.log`; else nothing."""
    name = PurePath(path)
    words = [word for word in _BETWEEN.split(name.name) if word]
    rest = [word for word in words if not _KINDS.match(word) and not word.isdigit()]
    has_kind = len(rest) < len([word for word in words if not word.isdigit()])
    for word in rest:
        if re.search(r"\d", word) and re.search(r"[A-Za-z]", word) and not _NOT_A_HOST.match(word):
            return word if has_kind or _LIKE_A_HOST.match(word) else ""
    folders = (folder.name for folder in list(name.parents)[:_FOLDERS])
    return next((word for word in folders if _LIKE_A_HOST.match(word) and not _NOT_A_HOST.match(word)), "")


def is_prefixed(lines: Sequence[str]) -> bool:
    """Say whether every line begins with a host, as pdsh, clush and srun write them, and something comes after it."""
    seen = [found[1] for line in lines if (found := _PREFIX.match(line))]
    if not seen or len(seen) < 0.9 * len(lines) or not all(map(_may_be_host, set(seen))):
        return False
    return sum(form_of(split_prefix(line)[1]) is not None for line in lines) >= len(lines) / 2


def _may_be_host(name: str) -> bool:
    """Say whether a word in front of a line may be a host: not a code of an error, a rank or a device."""
    return re.search(r"\d", name) is not None and not name.isupper() and not _NOT_A_HOST.match(name)


def split_prefix(line: str) -> tuple[str, str]:
    """Return the host in front of a line and the line without it."""
    found = _PREFIX.match(line)
    return (found[1], line[found.end() :]) if found else ("", line)


def grouped(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return each host's lines where equal output stands once below its hosts, as `dshbak -c` and `clush -b` print it.

    Empty where the lines are not of that form.
    """
    by_host: dict[str, list[str]] = {}
    hosts: list[str] = []
    at = 0
    while at < len(lines):
        if _RULE.match(lines[at]) and at + 2 < len(lines) and _RULE.match(lines[at + 2]):
            try:
                hosts = hostlist.expand(re.sub(r" \(\d+\)$", "", lines[at + 1].strip()))
            except SynclineError:
                return {}
            at += 3
            continue
        if not hosts:
            return {}
        for host in hosts:
            by_host.setdefault(host, []).append(lines[at])
        at += 1
    return by_host
