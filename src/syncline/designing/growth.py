"""Growth: what of a larger fabric is bought now, so that hosts join later and no cable that lies is moved.

growth = grow(choice, (256, 1024))
growth.now_usd, growth.ahead_usd, growth.later_usd, growth.steps

The fabric is laid out for the last size. Bought at every step are its hosts, the leaves they are cabled to, and every
switch above that those leaves are cabled to, with all cables between them; the rest waits. As what lies is part of the
last fabric as it stands, nothing is cabled again. What is bought ahead is the difference from a fabric of the same kind
laid out for the hosts so far alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.model import Handle, reported
from syncline.describe.progress import Meter
from syncline.designing.choice import FabricChoice, faster_link, space
from syncline.errors import SynclineError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.bill import Mask, network_lines
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import DeviceKind, Tier


@dataclass(frozen=True)
class GrowthStep:
    """What one step buys."""

    gpus: int
    usd: float
    ahead_usd: float
    """Of what lies after this step, what its hosts alone would not need."""
    switches: int
    cables: int


@dataclass(frozen=True)
class FabricGrowth:
    """One fabric in steps. Prices are of switches and cables, without hosts and their cards."""

    choice: Handle[FabricChoice]
    later_gpus: int
    now_usd: float
    ahead_usd: float
    """Of what is bought now, what the first hosts alone would not need."""
    later_usd: float
    switches_now: int
    switches_later: int
    cables_now: int
    cables_later: int
    next_link: str
    """The faster link that the switches have as well: what hosts of the next generation may join by; "": none."""
    steps: tuple[GrowthStep, ...]
    """The first hosts, then each later size; `later` above is all steps but the first."""

    @reported
    def label(self) -> str:
        return self.choice.label

    @reported
    def total_usd(self) -> float:
        """All steps."""
        return self.now_usd + self.later_usd


def grow(choice: FabricChoice, sizes: Sequence[int]) -> FabricGrowth:
    """Return a choice that grows to these numbers of hosts, or raise the FabricError that says why it cannot."""
    whole = choice.build(sizes[-1])
    per_host = whole.num_gpus // sizes[-1]
    switch, laid = _switches(whole), whole.links.num_cables * (whole.links.cable >= 0)
    steps: list[GrowthStep] = []
    before = (0.0, 0, 0)
    for hosts in (choice.num_hosts, *sizes):
        devices, links = bought_now(whole, hosts)
        alone = choice.build(hosts)
        so_far = (parts_usd(whole, devices, links), int((switch & devices).sum()), int(laid[links][::2].sum()))
        mine = parts_usd(alone, np.ones(len(alone.devices), bool), np.ones(len(alone.links), bool))
        usd, switches, cables = (a - b for a, b in zip(so_far, before, strict=True))
        steps.append(GrowthStep(hosts * per_host, usd, so_far[0] - mine, int(switches), int(cables)))
        before = so_far
    now, later, catalog = steps[0], steps[1:], load_catalog()
    next_link = faster_link(catalog, catalog.link(choice.link), catalog.switch(choice.switch))
    return FabricGrowth(
        choice, whole.num_gpus, now.usd, now.ahead_usd, sum(step.usd for step in later), now.switches,
        sum(step.switches for step in later), now.cables, sum(step.cables for step in later), next_link,
        tuple(steps),
    )  # fmt: skip


def growths(
    choices: Iterable[FabricChoice], sizes: Sequence[int], meter: Meter | None = None
) -> tuple[list[FabricGrowth], dict[str, str]]:
    """Return the choices that can grow so far, cheapest in all steps first, and why the others cannot."""
    able, cannot = [], {}
    for choice in choices:
        try:
            able.append(grow(choice, sizes))
        except SynclineError as error:
            cannot[choice.label] = error.message
        if meter:
            meter.advance()
    return sorted(able, key=lambda each: (each.total_usd, each.now_usd, each.choice)), cannot


def growths_like(
    best: FabricChoice, num_gpus: int, later: Sequence[int], meter: Meter
) -> tuple[tuple[FabricGrowth, ...], dict[str, str]]:
    """Return how fabrics with the hosts, cards and link of one choice grow to later numbers of GPUs."""
    per_host = num_gpus // best.num_hosts
    for before, size in zip((num_gpus, *later), later, strict=False):
        if size % per_host or size <= before:
            raise UsageError(
                f"`later` {size:,} is not more whole hosts than {before:,} GPUs.", hint=f"Try {8 * before}."
            )
    alike = [
        choice
        for choice in space((best.host,), (num_gpus,), (best.link,))
        if (choice.nic, choice.nics) == (best.nic, best.nics)
    ]
    meter.expect(len(alike))
    able, cannot = growths(alike, [size // per_host for size in later], meter)
    return tuple(able), cannot


def bought_now(fabric: Fabric, num_hosts: int) -> tuple[Mask, Mask]:
    """Return the devices and links of the first hosts: theirs, and every switch above with what joins them."""
    links, devices = fabric.links, fabric.devices
    there = (devices.host >= 0) & (devices.host < num_hosts)
    rises = (devices.level[links.dst] > devices.level[links.src]) | (links.tier == Tier.ACCESS)
    upward = rises & np.isin(devices.kind[links.dst], (DeviceKind.SWITCH, DeviceKind.OCS))
    while True:
        reached = there.copy()
        reached[links.dst[upward & there[links.src]]] = True
        if (reached == there).all():
            return there, there[links.src] & there[links.dst]
        there = reached


def parts_usd(fabric: Fabric, devices: Mask, links: Mask) -> float:
    """Return the price of some switches and cables of a fabric; a part without a price counts nothing."""
    return sum(line.price_usd for line in network_lines(fabric, devices, links))


def _switches(fabric: Fabric) -> Mask:
    return np.isin(fabric.devices.kind, (DeviceKind.SWITCH, DeviceKind.OCS))
