"""What NCCL's all-reduce of S sends out of each scale-up domain: a ring's bytes, or a double tree's where it is less.

A ring over n ranks enters and leaves each domain once: 2(n-1)/n S. In a double binary tree a domain is a leaf of one
tree and inside the other, and each tree carries S/2 up and down. Of two domains each sends S/2 up one tree and S/2 down
the other: S. Of more, the busiest has a parent and two children in one tree (3 S/2) and a parent in the other (S/2):
2 S, which is no less than the ring's. Gathers and scatters have no tree.

Which domain is whose parent: NVIDIA/nccl src/graph/trees.cc. The second tree is the first, mirrored or shifted by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.schedule.family.tree import half_tree


def tree_share(domains: float) -> float:
    """Return what the busiest domain of a double tree sends of each byte of the buffer.

    >>> tree_share(2), tree_share(4)
    (1.0, 2.0)
    """
    return 1.0 if domains == 2 else 2.0


def of_ring(ranks: float, domains: float) -> float:
    """Return what an all-reduce sends out of each domain over what a ring sends: less where there are two domains.

    >>> round(of_ring(16, 2), 3), of_ring(32, 4)
    (0.533, 1.0)
    """
    return min(1.0, tree_share(domains) * ranks / (2 * (ranks - 1)))


def lines_to_root(site: Sequence[int]) -> int:
    """Return how often the way from a domain to the root of a tree leaves a site at most, by the site of each domain.

    Of two sites of two the root's only child is the first domain of the other, which has the root's neighbour below it.

    >>> lines_to_root([0, 1]), lines_to_root([0, 0, 1, 1]), lines_to_root([0, 0, 0])
    (1, 2, 0)
    """
    most = 0
    for number in range(2):
        parent, depth = half_tree(len(site), number)
        lines = [0] * len(site)
        for domain in np.argsort(depth, kind="stable")[1:].tolist():
            lines[domain] = lines[parent[domain]] + (site[domain] != site[parent[domain]])
        most = max(most, *lines)
    return most
