"""Choices: every fabric that a design considers, as a short description that builds.

for choice in space(("dgx-h100",), (1024,)):
    fabric = choice.build()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from syncline.describe import units
from syncline.describe.document import Document
from syncline.describe.plain import JsonObject
from syncline.errors import CatalogError, CostError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.build import build
from syncline.fabric.catalog import Catalog, HostModel, LinkType, Nic, Part, Switch, load_catalog
from syncline.fabric.load import parse_cluster
from syncline.install.room import RACK_POWER_W

RATIOS = (1.0, 2.0, 4.0)
TREES = ("fat-tree", "rail-optimized")
PODS = (2, 4, 8)
RACK_HOSTS = 4
"""Most hosts under a leaf on top of their rack, where access cables are copper."""
BUDGET_COUNTS = 5
"""Numbers of hosts that are considered where only a budget is given."""
SLOWEST = 0.5
"""Links below this share of the host's own are left out: nobody buys such a host for them."""


@dataclass(frozen=True, order=True)
class FabricChoice:
    """One fabric: hosts, cards, links, switches and how they are joined."""

    host: str
    num_hosts: int
    nic: str
    nics: int
    link: str
    topology: str
    oversubscription: float
    switch: str
    planes: int = 1
    uplink: str = ""
    copper: bool = False
    spread: bool = False
    """Dragonfly: the cards of a host on neighbouring switches, not all on one."""
    sites: int = 1
    wan: str = ""
    """Between sites: rate and latency of a line, as "400Gbps,6ms"."""
    reduction: bool = False
    """Switches sum gradients on their way."""
    pods: int = 0
    """Optical: so many pods, joined by circuits."""
    rails_per_leaf: int = 1
    """Rail-only: rails that share a switch."""
    circuits: str = "ring"
    """Optical: how circuits lie, `ring` or `mesh`."""

    @property
    def key(self) -> str:
        """What names this choice in a state file."""
        return "|".join(str(value) for value in vars(self).values())

    @property
    def label(self) -> str:
        ratio = f" {self.oversubscription:g}:1" if self.topology in TREES else ""
        plane = f", {self.planes} planes" if self.planes > 1 else ""
        up = f", uplinks {self.uplink}" if self.uplink else ""
        copper = ", copper to the rack's leaf" if self.copper else ""
        spread = ", cards on switches of their own" if self.spread else ""
        spread += f", {self.sites} sites by {self.wan}" if self.sites > 1 else ""
        if self.pods:
            spread += f", {self.pods} pods joined by circuits ({self.circuits})"
        spread += ", switches sum" * self.reduction
        spread += f", {self.rails_per_leaf} rails a switch" * (self.rails_per_leaf > 1)
        card = f" ({self.nic})" if load_catalog().nic(self.nic).compresses > 1 else ""
        return (
            f"{self.topology}{ratio}, {self.nics} x {self.link}{card} a host, {self.switch}{plane}{up}{copper}{spread}"
        )

    @property
    def rack_hosts(self) -> int:
        """Hosts that a rack feeds beside a leaf with its modules (half of its power again)."""
        catalog = load_catalog()
        left_w = RACK_POWER_W - 1.5 * catalog.switch(self.switch).power_w
        return max(1, min(RACK_HOSTS, int(left_w // catalog.host(self.host).power_w)))

    def described(self, num_hosts: int = 0) -> JsonObject:
        """Return the cluster description."""
        network: JsonObject = {"topology": self.topology, "link": self.link, "switch": self.switch}
        if self.topology in TREES:
            network["oversubscription"] = self.oversubscription
        num_hosts = (num_hosts or self.num_hosts) // self.sites
        if self.topology == "torus":
            network |= {"of": "hosts", "shape": list(torus_shape(num_hosts))}
        if self.spread:
            network["spread_nics"] = True
        if self.reduction:
            network["reduction"] = True
        if self.rails_per_leaf > 1:
            network["rails_per_leaf"] = self.rails_per_leaf
        if self.pods:
            network |= {"hosts_per_pod": num_hosts // self.pods, "pattern": self.circuits}
        if self.uplink:
            network["uplink"] = self.uplink
        if self.copper:
            network |= {"hosts_per_leaf": self.rack_hosts, "lengths": {"access": "2.5m"}}
        if self.planes > 1:
            network = {"topology": "multi-plane", "planes": self.planes, "plane": network}
        host: JsonObject = {"model": self.host, "nic": self.nic, "nics": self.nics, "link": self.link}
        if self.planes > 1:
            host["ports_per_nic"] = self.planes
        site: JsonObject = {"hosts": num_hosts, "host": host, "network": network}
        if self.sites == 1:
            return {"name": "design"} | site
        rate, _, latency = self.wan.partition(",")
        each = [{"name": f"site-{n}"} | site for n in range(self.sites)]
        return {"name": "design", "sites": each, "wan": {"rate": rate, "latency": latency}}

    def build(self, num_hosts: int = 0) -> Fabric:
        """Build it, or raise the FabricError that says why it cannot be."""
        return build(parse_cluster(Document(self.described(num_hosts), {}, "design")))


def check_sites(sites: int, wan: str, one_site_only: bool) -> None:
    """Raise unless several sites have a line between them, and one site has none."""
    rate, comma, latency = wan.partition(",")
    if sites > 1 and not (rate.strip() and comma and latency.strip()):
        raise UsageError(
            f'{sites} sites need a line between them; `wan` is "{wan}".',
            hint='Give its rate and latency: "400Gbps,6ms".',
        )
    if sites == 1 and wan:
        raise UsageError(
            "`wan` joins several sites, and `sites` is 1.", hint="Give `sites` 2 or more, or leave `wan` out."
        )
    if sites > 1:
        units.rate(rate), units.time(latency)
        if one_site_only:
            raise UsageError("`later` and `storage` are for one site.", hint="Design each site alone.")


def gpu_counts(hosts: Sequence[str], gpus: int | None, budget_usd: float | None) -> list[int]:
    """Return the numbers of GPUs to consider: the given one, or those that divide well and that a budget may buy."""
    models = [load_catalog().host(name) for name in hosts]
    per_host = models[0].num_gpus
    if gpus is not None:
        if gpus < 2 * per_host or any(gpus % model.num_gpus for model in models):
            near = max(2 * per_host, round(gpus / per_host) * per_host)
            raise UsageError(f"`gpus` {gpus:,} is not at least two whole hosts of {per_host}.", hint=f"Try {near}.")
        return [gpus]
    if budget_usd is None:
        raise UsageError("a design needs a number of GPUs or a budget.", hint="Give `gpus` 1024, or a `budget` of 40M.")
    price = min((model.price_usd or 0.0) for model in models) or 1.0
    most = int(budget_usd / price)
    # Numbers that divide well: 1, 3, 5 or 7 times a power of two. The network takes its part, so not the most alone.
    counts = sorted({odd * 2**n for odd in (1, 3, 5, 7) for n in range(16) if 2 <= odd * 2**n <= most})
    if not counts:
        raise CostError(f"a budget of ${budget_usd:,.0f} buys no two hosts of {hosts[0]}.", hint="Raise `budget`.")
    return [per_host * count for count in counts[-BUDGET_COUNTS:]]


def space(
    hosts: Sequence[str],
    num_gpus: Sequence[int],
    links: Sequence[str] = (),
    sites: int = 1,
    wan: str = "",
    by: str = "",
) -> Iterator[FabricChoice]:
    """Lay out every choice for these hosts and numbers of GPUs; `links` narrows it to some link types.

    With several sites every one has a network of its own, and as many hosts as the others. `by` is a month, as 2027-06:
    parts that can be bought by then are looked at too, and what is newer than the usual ways to join hosts: circuits
    between pods, sums in switches, cards that compress.
    """
    if sites > 1:
        yield from (replace(one, sites=sites, wan=wan) for one in space(hosts, num_gpus, links, by=by)
                    if one.num_hosts % sites == 0 and one.topology != "torus")  # fmt: skip
        return
    catalog = load_catalog()
    for name in hosts:
        host = catalog.host(name)
        for total in num_gpus:
            for link in _links(catalog, host, links, by):
                yield from _of_link(catalog, host, total // host.num_gpus, link, by)


def _of_link(catalog: Catalog, host: HostModel, num_hosts: int, link: LinkType, by: str) -> Iterator[FabricChoice]:
    nic = _nic(catalog, host, link, 1, by)
    twin = _nic(catalog, host, link, 2, by)
    for nics in sorted({host.num_gpus, max(1, host.num_gpus // 2)}, reverse=True):
        for switch in _switches(catalog, link, by):
            if nic is not None:
                base = (host.name, num_hosts, nic.name, nics, link.name)
                if by:
                    yield from _coming(catalog, base, switch, by)
                yield FabricChoice(*base, "rail-only", 1.0, switch.name)
                if nics % 2 == 0 and 2 * num_hosts <= catalog.num_ports(switch, link):
                    yield FabricChoice(*base, "rail-only", 1.0, switch.name, rails_per_leaf=2)
                yield FabricChoice(*base, "dragonfly", 1.0, switch.name)
                yield FabricChoice(*base, "dragonfly", 1.0, switch.name, spread=True)
                if min(torus_shape(num_hosts)) > 1:
                    yield FabricChoice(*base, "torus", 1.0, switch.name)
                for ratio in RATIOS:
                    for tree in TREES:
                        yield FabricChoice(*base, tree, ratio, switch.name)
                    if not host.rack_gpus:  # a rack that is sold as one has no place for a leaf
                        yield FabricChoice(*base, "fat-tree", ratio, switch.name, copper=True)
                    if uplink := faster_link(catalog, link, switch):
                        yield FabricChoice(*base, "rail-optimized", ratio, switch.name, uplink=uplink)
            if twin is not None:
                for ratio in RATIOS:
                    yield FabricChoice(host.name, num_hosts, twin.name, nics, link.name, "rail-optimized", ratio,
                                       switch.name, planes=2)  # fmt: skip


def _coming(catalog: Catalog, base: tuple[str, int, str, int, str], switch: Switch, by: str) -> Iterator[FabricChoice]:
    """Lay out what is newer than trees of switches: circuits between pods, sums in switches, cards that compress."""
    host, num_hosts, _, nics, link = base
    for pods in PODS:
        if num_hosts % pods == 0 and num_hosts // pods > 1:
            for circuits in ("ring", "mesh"):
                yield FabricChoice(*base, "optical", 1.0, switch.name, pods=pods, circuits=circuits)
    ways = [(base, True)] if switch.in_switch_reduction and switch.reduction_bytes else []
    cards = [part for part in catalog.parts("nic") if isinstance(part, Nic) and part.compresses > 1]
    offered = [part.name for part in cards if link in part.links and _on_sale(part, by)]
    ways += [((host, num_hosts, name, nics, link), False) for name in offered]
    for mine, sums in ways:
        for tree in TREES:
            for ratio in RATIOS:
                yield FabricChoice(*mine, tree, ratio, switch.name, reduction=sums)


def grid(
    hosts: Sequence[str], num_gpus: Sequence[int], links: Sequence[str], topologies: Sequence[str],
    ratios: Sequence[float], by: str = "",
) -> Iterator[FabricChoice]:  # fmt: skip
    """Lay out the alternatives that were asked for: rate by topology by oversubscription, on every switch for them.

    Hosts have a card for each GPU. A topology without uplinks in proportion to its ports has one ratio.
    """
    catalog = load_catalog()
    known = (*TREES, "rail-only", "dragonfly", "torus")
    for name in topologies:
        if name not in known:
            raise UsageError(f'no topology "{name}" is designed.', hint=f"One of: {', '.join(known)}.")
    for host in map(catalog.host, hosts):
        named = [catalog.link(name) for name in links] or [catalog.link(str(host.link))]
        for total in num_gpus:
            for link in named:
                nic = _nic(catalog, host, link, 1, by)
                switches = _switches(catalog, link, by)
                if nic is None or not switches:
                    raise UsageError(
                        f"no card or no switch of the catalogue has {link.name}.", hint="Name other links."
                    )
                for topology in topologies or TREES:
                    for ratio in (ratios or RATIOS[:1]) if topology in TREES else (1.0,):
                        for switch in switches:
                            base = (host.name, total // host.num_gpus, nic.name, host.num_gpus, link.name)
                            yield FabricChoice(*base, topology, ratio, switch.name)


def _on_sale(part: Part, by: str) -> bool:
    """Whether a part can be bought: now, or by the month that is asked for."""
    return not part.available or part.available <= by


def torus_shape(num_hosts: int) -> tuple[int, int, int]:
    """Return the three sides of a torus of so many hosts, as near to a cube as its factors allow.

    >>> torus_shape(128), torus_shape(7)
    ((4, 4, 8), (1, 1, 7))
    """
    sides = [1, 1, 1]
    for factor in sorted(factors(num_hosts), reverse=True):
        sides[sides.index(min(sides))] *= factor
    small, middle, large = sorted(sides)
    return small, middle, large


def factors(number: int) -> list[int]:
    """Return the prime factors of a number.

    >>> factors(360)
    [2, 2, 2, 3, 3, 5]
    """
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found + [number] * (number > 1)


def _links(catalog: Catalog, host: HostModel, names: Sequence[str], by: str) -> list[LinkType]:
    if names:
        return [catalog.link(name) for name in names]
    own = catalog.link(host.link) if host.link else None
    found = []
    for part in catalog.parts("link"):
        assert isinstance(part, LinkType)
        near = own is None or own.rate_Bps * SLOWEST <= part.rate_Bps <= own.rate_Bps * 1.001
        plain = part.family in ("infiniband", "ethernet") and part.rdma and part.wire is None
        if plain and near and _on_sale(part, by):
            found.append(part)
    return found


def skipped_links(hosts: Sequence[str], links: Sequence[str], by: str) -> str:
    """Say which faster links are not looked at, and how to ask for them; empty: none, or they were named."""
    catalog = load_catalog()
    if links:
        return ""
    words = []
    for host in map(catalog.host, hosts):
        own = catalog.link(host.link) if host.link else None
        looked = {link.name for link in _links(catalog, host, (), by)}
        faster = [part.name for part in catalog.parts("link")
                  if isinstance(part, LinkType) and own is not None and part.rate_Bps > own.rate_Bps * 1.001
                  and part.name not in looked and part.rdma and part.wire is None and _on_sale(part, by)
                  and _nic(catalog, host, part, 1, by) is not None and _switches(catalog, part, by)]  # fmt: skip
        if faster:
            words.append(f"links faster than {host.name}'s own cards ({', '.join(faster)})")
    return f"{'; '.join(words)}: name them as `link` to have new cards priced too" if words else ""


def _nic(catalog: Catalog, host: HostModel, link: LinkType, ports: int, by: str) -> Nic | None:
    """Return the host's own card where it can, else the cheapest that has so many ports of this link."""
    own = catalog.nic(host.nic) if host.nic else None
    if own is not None and link.name in own.links and own.num_ports >= ports:
        return own
    fits = [part for part in catalog.parts("nic") if isinstance(part, Nic) and link.name in part.links
            and part.num_ports == ports and part.price_usd is not None and part.compresses == 1 and _on_sale(part, by)
            and part.max_Bps >= ports * link.rate_Bps * 0.999]  # fmt: skip
    return min(fits, key=lambda part: part.price_usd or 0.0, default=None)


def _switches(catalog: Catalog, link: LinkType, by: str) -> list[Switch]:
    found = []
    for part in catalog.parts("switch"):
        assert isinstance(part, Switch)
        bought = part.price_usd is not None and part.vendor != "hpe" and _on_sale(part, by)
        if part.reconfiguration_s is None and bought:
            try:
                ports = catalog.num_ports(part, link)
            except CatalogError:
                continue
            found.append((part, ports))
    return [part for part, ports in found if not any(_better(other, part, ports) for other in found)]


def _better(other: tuple[Switch, int], part: Switch, ports: int) -> bool:
    """Whether a switch has as many ports at no higher price and power, and is not the same in all three."""
    rival, theirs = other
    mine = (-ports, part.price_usd or 0.0, part.power_w)
    them = (-theirs, rival.price_usd or 0.0, rival.power_w)
    # Optics in the package are in price and power, and save modules: such a switch is another kind of part.
    alike = rival.co_packaged == part.co_packaged
    return alike and them != mine and all(a <= b for a, b in zip(them, mine, strict=True))


def faster_link(catalog: Catalog, link: LinkType, switch: Switch) -> str:
    """Return the slowest link of the same family that the switch has and that is faster by half; empty: none."""
    modes = [catalog.link(mode.link) for mode in switch.modes]
    faster = [one for one in modes if one.family == link.family and one.rate_Bps > link.rate_Bps * 1.5]
    return min(faster, key=lambda one: one.rate_Bps).name if faster else ""
