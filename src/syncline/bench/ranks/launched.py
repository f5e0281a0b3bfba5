"""The ranks that measure: launched together, or this process's own command started N times."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncline.fabric import Fabric
    from syncline.runtime.group import Group
    from syncline.runtime.launch import Launch


def launched() -> Launch:
    """Return this process's place among the ranks that were launched together."""
    from syncline.errors import UsageError
    from syncline.runtime.launch import detect

    launch = detect(os.environ)
    if launch is None:
        raise UsageError("no launcher started this process.",
                         hint="Use torchrun, srun or mpirun, or add --local 4 for a try on this machine.")  # fmt: skip
    if launch.num_ranks < 2:
        raise UsageError("a collective needs at least two ranks.", hint="Start more processes.")
    # A rank waits in the network, where Python answers no signal, and leaves nothing behind: it ends at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return launch


def join(backend: str | None) -> Group:
    """Join the ranks that were launched together."""
    from syncline.runtime.group import Group

    return Group.join(launched(), backend=backend or Group.usual_backend())


def described(cluster: str) -> Fabric:
    """Return the cluster that ranks run on: as described, and inside a lab at the rates the lab gives its links."""
    from dataclasses import replace

    import numpy as np

    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.fabric.fabric import NETWORK_TIERS

    fabric = load(cluster)
    text = os.environ.get("SYNCLINE_LAB_SCALE", "")
    if not text:
        return fabric
    try:
        scale = float(text)
    except ValueError:
        raise UsageError(f'SYNCLINE_LAB_SCALE is "{text}", which is not a number.', where="environment") from None
    network = np.isin(fabric.links.tier, [int(tier) for tier in NETWORK_TIERS])
    rate = np.where(network, fabric.links.rate_Bps * scale, fabric.links.rate_Bps)
    return replace(fabric, links=replace(fabric.links, rate_Bps=rate))


def flat(num_hosts: int) -> Fabric:
    """Return hosts on one switch, for when no cluster is described: it says who there is, and predicts nothing."""
    from syncline.fabric import ClusterSpec, build

    network = {"topology": "leaf-spine", "link": "100GbE", "hosts_per_leaf": num_hosts, "spines": 1}
    return build(ClusterSpec.model_validate({"hosts": num_hosts, "host": "1 x H100", "network": network}))
