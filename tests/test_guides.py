"""The documentation keeps its word: every cluster in the guide builds, and no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syncline.fabric import load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = ROOT / "docs" / "guides" / "cluster-file.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
#: Pages that the site makes from the code; its strict build checks links to them.
MADE = ("claims.md", "gallery/index.md", "reference/cli.md", "reference/api.md", "schemas.md")
HOSTS, NETWORK = "hosts: 64\nhost: 8 x H100\n", "network: rail-optimized NDR\n"
# What a piece of a description stands beside, by its first key.
REST = {
    "host": "hosts: 64\nnetwork: fat-tree NDR\n",
    "faults": HOSTS + NETWORK,
    "parts": HOSTS + "network: {topology: fat-tree, link: 400GbE, switch: our-tor}\n",
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_every_cluster_of_the_guide_builds(block: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(REST.get(block.partition(":")[0], "") + block, "utf-8")
    assert load(path).num_gpus > 0


def test_cables_by_name_are_what_the_guide_says(tmp_path: Path) -> None:
    (block,) = (block for block in BLOCKS if "topology: explicit" in block)
    path = tmp_path / "cluster.yaml"
    path.write_text(block, "utf-8")
    fabric = load(path)
    leaf = [fabric.link_name(int(i)) for i in fabric.out_links(fabric.device("leaf-a"))]
    assert leaf.count("leaf-a -> spine") == 4
    slow = fabric.out_links(fabric.device("host-01/nic-1"))
    assert 100e9 / 8 in fabric.links.rate_Bps[slow].tolist()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text("utf-8"))
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    dead = [link for link in dead if not link.endswith(MADE)]
    assert dead == []
