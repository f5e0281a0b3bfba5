"""IMEX, the service that lets hosts of one NVLink domain (NVL72) map each other's GPU memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from syncline.host.host import Host

IMEX_CTL = ("nvidia-imex-ctl", "-N")
CHANNELS = "dev/nvidia-caps-imex-channels"
NODES = "etc/nvidia-imex/nodes_config.cfg"
CONNECTED = "C"
_NODE = re.compile(r"Node #(\d+)\s+[-*]\s+(\S+)\s+(?:\*\s+)?-\s+(\w+)(?:\s+-\s+Version: (\S+))?")
"""Stars stand around the address of the host that was asked."""
_ROW = re.compile(r"\s+(\d+)\s+((?:!?[A-Z]!?\s*)+)")


@dataclass(frozen=True)
class ImexNode:
    """One host of the domain, as the service sees it."""

    index: int
    address: str
    state: str
    version: str


@dataclass(frozen=True)
class ImexDomain:
    """`nvidia-imex-ctl -N`: state, nodes, and pairs that are not connected with the letter of their state."""

    state: str
    nodes: tuple[ImexNode, ...]
    apart: tuple[tuple[int, int, str], ...]


def parse_imex(text: str) -> ImexDomain | None:
    """Read `nvidia-imex-ctl -N`; None where it tells no state of a domain."""
    state = re.search(r"^Domain State: (\w+)", text, re.MULTILINE)
    if state is None:
        return None
    found = (_NODE.match(line) for line in text.splitlines())
    nodes = tuple(ImexNode(int(m[1]), m[2], m[3], m[4] or "") for m in found if m)
    return ImexDomain(state[1], nodes, tuple(_apart(text)))


def node_map(host: Host) -> tuple[str, ...]:
    """Return the addresses of the domain's hosts as this one is configured."""
    lines = (line.partition("#")[0].strip() for line in (host.root.text(NODES) or "").splitlines())
    return tuple(line for line in lines if line)


def _apart(text: str) -> list[tuple[int, int, str]]:
    """Return the cells of the connectivity table that are not C."""
    _, _, table = text.partition("From\\To")
    heads = [int(word) for word in table.split("\n", 1)[0].split() if word.isdecimal()]
    rows = [match for line in table.splitlines()[1:] if (match := _ROW.fullmatch(line.rstrip()))]
    return [
        (int(row[1]), to, cell)
        for row in rows
        for to, cell in zip(heads, row[2].split(), strict=False)
        if cell != CONNECTED
    ]
