"""A rehearsal's network as the model of shaped links sees it: rates as emulated, paths as the kernel takes them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from syncline.lab import Blueprint, Lab
from syncline.runtime.alive.pace import BURST_BYTES
from syncline.sim.emulate.emulation import HostLinks

SEND_BUFFER_BYTES = 256 << 10
"""What the lab's sockets take before a sender has to wait."""


def wiring_of(lab: Lab) -> HostLinks:
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
    return HostLinks.of(
        np.array([rates[link] for link in order]),
        path,
        list(range(len(hosts))),
        burst_bytes=float(profile.burst_bytes),
        names=[blueprint.link_names[link] for link in order],
        delay_s=np.array([delays[link] for link in order]),
        head_start_bytes=float(profile.tcp_limit_output_bytes),
        send_buffer_bytes=SEND_BUFFER_BYTES,
    )


def rates_out(blueprint: Blueprint) -> dict[str, float]:
    """Return the rate of every host's first NIC, at the scale of a blueprint, in order of hosts."""
    rates = {
        blueprint.boxes[end.box].name: rate_Bps
        for cable in blueprint.cables
        for end, _, _, rate_Bps in cable.ends()
        if blueprint.boxes[end.box].kind == "host" and end.interface == "eth0"
    }
    return {blueprint.boxes[host].name: rates[blueprint.boxes[host].name] for host in blueprint.hosts}


def wiring_of_rates(rates: Mapping[str, float]) -> HostLinks:
    """Return hosts that are only limited in what they send, one rank each: as the runtime's own rate limit does it."""
    count = range(len(rates))
    path = {(a, b): [a] for a in count for b in count if a != b}
    names = [f"{host}, sending" for host in rates]
    return HostLinks.of(np.array(list(rates.values())), path, list(count), burst_bytes=float(BURST_BYTES), names=names)
