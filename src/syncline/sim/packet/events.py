"""Failures and repairs by name, as a scenario and `--fail` write them, as changes of a packet run."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.errors import SimulationError
from syncline.fabric.faults import FailedPart, links_of_fault
from syncline.sim.packet.change import LinkChange
from syncline.sim.packet.network import PacketNetwork
from syncline.sim.scenario import Event


def cables(network: PacketNetwork, link: str | None, device: str | None, which: int | None = None) -> list[int]:
    """Return the network cables of a link or a device, each by its first link."""
    found = links_of_fault(network.fabric, FailedPart(link=link, device=device, which=which))
    kept = sorted({int(each) & ~1 for each in found if network.port_of_link[each] >= 0})
    if not kept:
        raise SimulationError(
            f'"{link or device}" has no network cable; inside hosts there are no packets.',
            hint="Name a NIC, a switch, or a cable between them.",
        )
    return kept


def is_access(network: PacketNetwork, cable: int) -> bool:
    """Say whether a cable is that of a NIC."""
    return any(int(network.src[network.port_of_link[link]]) < 0 for link in (cable, cable ^ 1))


def link_changes(network: PacketNetwork, events: Sequence[Event]) -> list[LinkChange]:
    """Return the changes of links that events mean; a repair is learned of as fast as the failure before it was."""
    found: list[LinkChange] = []
    down: dict[int, Event] = {}
    for event in sorted(events, key=lambda each: each.at):
        for cable in cables(network, event.link, event.device, event.which):
            full = float(network.fabric.links.rate_Bps[cable])
            factor = 1.0 if event.rate == "full" else min(1.0, event.rate / full)
            before = down.pop(cable, None)
            reroute = event.reroute if event.reroute is not None or before is None else before.reroute
            if factor == 0:
                down[cable] = event
            found.append(LinkChange(event.at, cable, factor, reroute))
    for cable in down:
        if is_access(network, cable):
            raise SimulationError(
                f"{network.fabric.link_name(cable)} fails and is never repaired; packets do not move to another NIC.",
                hint="Add its repair, or use --level flow, where traffic moves.",
            )
    return found
