"""What NCCL's all-reduce of S sends out of each scale-up domain: a ring's bytes, or a double tree's where it is less.

A ring over n ranks enters and leaves each domain once: 2(n-1)/n S. In a double binary tree a domain is a leaf of one
tree and inside the other, and each tree carries S/2 up and down. Of two domains each sends S/2 up one tree and S/2 down
the other: S. Of more, the busiest has a parent and two children in one tree (3 S/2) and a parent in the other (S/2):
2 S, which is no less than the ring's. Gathers and scatters have no tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def tree_share(domains: float) -> float:
    """Return what the busiest domain of a double tree sends of each byte of the buffer.

    >>> tree_share(2), tree_share(4)
    (1.0, 2.0)
    """
    return 1.0 if domains == 2 else 2.0


def sum_share(ranks: Floats, domains: Floats) -> Floats:
    """Return what an all-reduce sends out of each domain of each byte of the buffer, ring or tree.

    >>> sum_share(np.array([16.0, 32.0]), np.array([2.0, 4.0])).tolist()
    [1.0, 1.9375]
    """
    return np.asarray(np.where(domains == 2, 1.0, 2 * (ranks - 1) / ranks))
