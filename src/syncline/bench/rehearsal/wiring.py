"""A lab as the model of shaped links sees it: rates as emulated, paths as the kernel takes them."""

from __future__ import annotations

import numpy as np

from syncline.lab import Lab
from syncline.sim.emulation import Wiring

SEND_BUFFER_BYTES = 256 << 10
"""What the lab's sockets take before a sender has to wait."""


def wiring_of(lab: Lab, ranks_per_host: int = 1) -> Wiring:
    """Return the wiring of an open lab with so many ranks on every host, in order of hosts."""
    blueprint = lab.blueprint
    rates: dict[int, float] = {}
    delays: dict[int, float] = {}
    for cable in blueprint.cables:
        for _, _, link, rate_Bps in cable.ends():
            rates[link], delays[link] = rate_Bps, cable.delay_s
    order = sorted(rates)
    number = {link: i for i, link in enumerate(order)}
    hosts = {name: i for i, name in enumerate(lab.host_names)}
    path = {
        (hosts[host], hosts[to]): [number[link] for link in links]
        for (host, to, interface), links in lab.paths().links.items()
        if interface == "eth0"
    }
    profile = blueprint.profile
    return Wiring.of(
        np.array([rates[link] for link in order]),
        path,
        [host for host in range(len(hosts)) for _ in range(ranks_per_host)],
        burst_bytes=float(profile.burst_bytes),
        names=[blueprint.link_names[link] for link in order],
        delay_s=np.array([delays[link] for link in order]),
        head_start_bytes=float(profile.tcp_limit_output_bytes),
        send_buffer_bytes=SEND_BUFFER_BYTES,
    )
