"""NCCL topology files and dumps (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`), read and written without loss.

    topology = read_nccl("ndv5-topo.xml")
    topology.root.get("version")        # "1"
    write_nccl(topology)                # the same elements and attributes, in the same order

What the tree means is in `nccl_host` (GPUs, NICs, links), `nccl_paths` (PIX, PXB, PHB, SYS as NCCL finds them) and
`nccl_check` (would NCCL's own parser take it?).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.describe.document import read_text
from syncline.describe.xml import parse_xml
from syncline.errors import DescriptionError

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

MAX_BYTES = 8 * 2**20
"""A dump of a host has some 50 KiB; a fused one of an NVL72 rack about 300."""


@dataclass(frozen=True)
class NcclTopology:
    """A `system` element with everything below it and the comments above it, as NCCL lays it out."""

    text: str
    source: str = field(default="NCCL topology", compare=False)

    @property
    def root(self) -> Element:
        """The `system` element; a tree of its own each time."""
        return parse_xml(self.text, self.source)


def read_nccl(path: str | os.PathLike[str]) -> NcclTopology:
    """Read a topology file or dump."""
    return parse_nccl(read_text(Path(path), limit=MAX_BYTES), str(path))


def parse_nccl(text: str, source: str = "NCCL topology") -> NcclTopology:
    """Parse the text of a topology file or dump; unknown elements and attributes are kept."""
    root = parse_xml(text, source)
    if root.tag != "system":
        raise DescriptionError(
            f"the root element is <{root.tag}>, not <system>: this is not an NCCL topology.",
            where=f"{source} line {root.sourceline}",
            hint="NCCL_TOPO_DUMP_FILE writes topologies; NCCL_GRAPH_DUMP_FILE writes graphs, which are something else.",
        )
    return laid_out(root, source)


def laid_out(root: Element, source: str) -> NcclTopology:
    """Return the topology of a `system` element."""
    from lxml import etree

    return NcclTopology(etree.tostring(root.getroottree(), pretty_print=True, encoding="unicode"), source)


def write_nccl(topology: NcclTopology) -> str:
    """Return the topology as NCCL itself writes it."""
    return topology.text
