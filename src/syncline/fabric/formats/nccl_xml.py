"""NCCL topology files and dumps (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`) as a frozen tree that loses nothing.

    topology = read_nccl("ndv5-topo.xml")
    topology.root.get("version")        # "1"
    write_nccl(topology)                # the same elements and attributes, in the same order

What the tree means is in `nccl_host` (GPUs, NICs, links), `nccl_paths` (PIX, PXB, PHB, SYS as NCCL finds them) and
`nccl_check` (would NCCL's own parser take it?).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from syncline.describe.document import read_text
from syncline.describe.safe_xml import Comment, Element, parse_xml, write_xml
from syncline.errors import DescriptionError

MAX_BYTES = 8 * 2**20
"""A dump of a host has some 50 KiB; a fused one of an NVL72 rack about 300."""
MAX_ELEMENTS = 50_000


@dataclass(frozen=True)
class NcclTopology:
    """A `system` element with everything below it, and the comments above it."""

    root: Element
    before: tuple[Comment, ...] = ()
    source: str = "NCCL topology"

    def all(self, tag: str) -> Iterator[Element]:
        """Yield every element of that tag, in document order."""
        return (element for element in self.root.walk() if element.tag == tag)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NcclTopology) and (self.root, self.before) == (other.root, other.before)

    def __hash__(self) -> int:
        return hash((self.root, self.before))


def read_nccl(path: str | os.PathLike[str]) -> NcclTopology:
    """Read a topology file or dump."""
    file = Path(path)
    return parse_nccl(read_text(file, limit=MAX_BYTES), str(path))


def parse_nccl(text: str, source: str = "NCCL topology") -> NcclTopology:
    """Parse the text of a topology file or dump; unknown elements and attributes are kept."""
    before, root = parse_xml(text, source, max_elements=MAX_ELEMENTS)
    if root.tag != "system":
        raise DescriptionError(
            f"the root element is <{root.tag}>, not <system>: this is not an NCCL topology.",
            where=f"{source} line {root.line}",
            hint="NCCL_TOPO_DUMP_FILE writes topologies; NCCL_GRAPH_DUMP_FILE writes graphs, which are something else.",
        )
    return NcclTopology(root, before, source)


def write_nccl(topology: NcclTopology) -> str:
    """Return the topology as NCCL itself writes it."""
    return write_xml(topology.before, topology.root)
