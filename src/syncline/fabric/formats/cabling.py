"""Cables as somebody found them: which port of which device leads to which; and the cluster they make.

Discovery tools (ibnetdiscover, iblinkinfo, UFM, LLDP tables) agree on little but this. Their readers return a
`Cabling`; `cabling_cluster` turns it into an explicit cluster, cable by cable.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, UsageError
from syncline.fabric.catalog import Catalog, load_catalog
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text

D = TypeVar("D", bound=Hashable)
MAX_LEVEL = 9
_MOST_CABLES = 1_000_000
_MOST_NICS = 64
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Plug:
    """One end of a cable: a device and what it calls the port."""

    device: str
    port: str


@dataclass(frozen=True)
class FoundCable:
    """A cable between two plugs; `link` is a link of the catalogue, `rate_Bps` what it runs at where none fits."""

    a: Plug
    b: Plug
    link: str | None = None
    rate_Bps: float | None = None


@dataclass(frozen=True)
class Cabling:
    """What a discovery found: hosts and switches by name, and the cables between them."""

    hosts: tuple[str, ...]
    switches: Mapping[str, str]
    """Model of each switch, "" where it is not said."""
    cables: tuple[FoundCable, ...]
    source: str
    remarks: tuple[str, ...] = field(default=())


def cabling_cluster(
    cabling: Cabling, host: str | JsonObject | None, *, name: str, link: str | None = None
) -> ClusterSpec:
    """Return the explicit cluster of what was found; cables whose rate is not said run as `link` or the NICs do."""
    if host is None:
        raise UsageError(
            "a list of cables says nothing about the GPUs in the hosts.",
            where=cabling.source,
            hint='Name a host model: --host dgx-h100, or --host "8 x H100".',
        )
    if not cabling.hosts:
        raise DescriptionError("no host is among the devices found, only switches.", where=cabling.source)
    if len(cabling.cables) > _MOST_CABLES:
        raise DescriptionError(f"{len(cabling.cables):,} cables are more than are read.", where=cabling.source)
    odd = odd_links(cabling)
    cabling, host, asked = _chosen_hosts(cabling, host)
    catalog = load_catalog()
    base = HostSpec.model_validate(host_from_text(host))
    nics, remarks = _nics(cabling, base, catalog)
    groups: dict[int, list[str]] = defaultdict(list)
    for one in cabling.hosts:
        groups[len(nics[one])].append(one)
    if set(groups) == {0}:
        raise DescriptionError("no cable leads to a host.", where=cabling.source)
    usual = base.resolve(catalog).link
    levels = levels_from_hosts(((c.a.device, c.b.device) for c in cabling.cables), cabling.hosts)
    rows = {
        "name": name,
        "hosts": [
            {
                "names": names,
                "host": base.model_dump(exclude_none=True) | ({"nics": count} if base.nics is None else {}),
            }
            for count, names in groups.items()
        ],
        "network": {
            "topology": "explicit",
            "link": link or usual or "",
            "switches": [
                {"name": one, "level": min(MAX_LEVEL, levels.get(one, 1))}
                | ({"model": model} if model in catalog.names("switch") else {})
                for one, model in cabling.switches.items()
            ],
            "cables": _rows(cabling, nics),
        },
        "source": f"cables found: {cabling.source}",
        "notes": "; ".join((*cabling.remarks, *asked, *odd, *remarks)),
    }
    return ClusterSpec.model_validate(rows)


def _chosen_hosts(
    cabling: Cabling, host: str | JsonObject
) -> tuple[Cabling, str | JsonObject, tuple[str, ...]]:  # fmt: skip
    """Return the cabling of the hosts that `host` speaks of ("gpu*=8 x H100"), the model, and what is to be said."""
    families = Counter(re.split(r"[-_.]?\d", name)[0] for name in cabling.hosts)
    if not (isinstance(host, str) and "=" in host):
        if len(families) < 2:
            return cabling, host, ()
        kinds = ", ".join(f"{count} {name}" for name, count in families.most_common(4))
        some = f"--host '{min(families)}*=MODEL' takes one"
        asked = f"hosts of several kinds by name ({kinds}) are all taken as {host}: {some}"
        return cabling, host, (asked,)
    patterns, _, model = host.partition("=")
    kept = [name for name in cabling.hosts if any(fnmatchcase(name, one.strip()) for one in patterns.split(","))]
    if not kept:
        raise UsageError(f'no host is called like "{patterns}".', where=cabling.source,
                         hint=f"Hosts are called {', '.join(cabling.hosts[:4])} ...")  # fmt: skip
    lost = set(cabling.hosts) - set(kept)
    cables = tuple(one for one in cabling.cables if not {one.a.device, one.b.device} & lost)
    asked_of = (f"{len(lost)} hosts that are not called {patterns} are left out",) if lost else ()
    return replace(cabling, hosts=tuple(kept), cables=cables), model.strip(), asked_of


def odd_links(cabling: Cabling) -> tuple[str, ...]:
    """Return cables that run otherwise than nearly all of their kind: to hosts, and between switches."""
    kinds: dict[str, list[FoundCable]] = defaultdict(list)
    for cable in cabling.cables:
        to_host = {cable.a.device, cable.b.device} & set(cabling.hosts)
        kinds["to hosts" if to_host else "between switches"].append(cable)
    found = []
    for kind, cables in kinds.items():
        counted = Counter(_runs_at(cable) for cable in cables if _runs_at(cable))
        if len(counted) < 2:
            continue
        usual = counted.most_common(1)[0][0]
        odd = [cable for cable in cables if _runs_at(cable) not in ("", usual)]
        if len(odd) <= max(1, len(cables) // 8):
            ends = ", ".join(
                f"{one.a.device}:{one.a.port} - {one.b.device}:{one.b.port} ({_runs_at(one)})" for one in odd[:3]
            )
            found.append(f"odd link: {len(odd)} of {len(cables)} cables {kind} run otherwise than {usual}: {ends}")
    return tuple(found)


def _runs_at(cable: FoundCable) -> str:
    return cable.link or (f"{cable.rate_Bps * 8 / 1e9:g} Gb/s" if cable.rate_Bps else "")


def levels_from_hosts(ends: Iterable[tuple[D, D]], hosts: Iterable[D]) -> dict[D, int]:
    """Return how many cables each device is from the nearest host: 1 is a leaf."""
    near: dict[D, list[D]] = defaultdict(list)
    for a, b in ends:
        near[a].append(b)
        near[b].append(a)
    distance = dict.fromkeys(hosts, 0)
    here = list(distance)
    while here:
        after = []
        for one in here:
            for other in near[one]:
                if other not in distance:
                    distance[other] = distance[one] + 1
                    after.append(other)
        here = after
    return distance


def in_order(text: str) -> tuple[str | int, ...]:
    """Return a key that sorts mlx5_2 before mlx5_10."""
    return tuple((int(part) if part.isdecimal() else part) for part in _NUMBERS.split(text))


def once(cables: Iterable[FoundCable]) -> tuple[FoundCable, ...]:
    """Return each cable once: most tools list it from both of its ends, and either end may know its rate."""
    cables_by_ends: dict[frozenset[Plug], FoundCable] = {}
    for cable in cables:
        known = cables_by_ends.get(key := frozenset((cable.a, cable.b)))
        if known is None or (known.link is None and known.rate_Bps is None):
            cables_by_ends[key] = cable
    return tuple(cables_by_ends.values())


def _nics(cabling: Cabling, base: HostSpec, catalog: Catalog) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the number of each NIC of each host by the name of its port: in the order of names, as many as it has.

    Where hosts call their ports alike, a name has one number everywhere: a dead first port renumbers nothing.
    """
    ports: dict[str, set[str]] = {host: set() for host in cabling.hosts}
    for cable in cabling.cables:
        for plug in (cable.a, cable.b):
            if plug.device in ports:
                ports[plug.device].add(plug.port)
    most = base.resolve(catalog).num_nics if base.model or base.nics is not None else _MOST_NICS
    counted = Counter(name for names in ports.values() for name in names)
    usual = [name for name in sorted(counted, key=in_order) if 2 * counted[name] > len(ports)]
    left: Counter[int] = Counter()
    numbered = {}
    for host, names in ports.items():
        ordered = usual if names <= set(usual) else sorted(names, key=in_order)
        numbered[host] = {port: i for i, port in enumerate(ordered[:most])}
        left[len(ordered) - most] += 1
    remarks = [
        f"{count:,} hosts have {extra} ports more than the {most} NICs of their model; the last by name are left out"
        for extra, count in sorted(left.items())
        if extra > 0
    ]
    return numbered, remarks


def _rows(cabling: Cabling, nics: Mapping[str, Mapping[str, int]]) -> list[JsonObject]:
    """Return the cables of the description, parallel ones of a kind as one row."""

    def end(plug: Plug) -> str | None:
        if plug.device not in nics:
            return plug.device
        number = nics[plug.device].get(plug.port)
        return None if number is None else f"{plug.device}/nic-{number}"

    counts: Counter[tuple[str, str, str | None, float | None]] = Counter()
    for cable in cabling.cables:
        a, b = end(cable.a), end(cable.b)
        if a is not None and b is not None:
            first, second = sorted((a, b), key=in_order)
            counts[first, second, cable.link, cable.rate_Bps] += 1
    rows: list[JsonObject] = []
    for (a, b, link, rate), count in counts.items():
        fields = {"link": link, "rate": None if link else rate, "count": count if count > 1 else None}
        rows.append({"a": a, "b": b} | {key: value for key, value in fields.items() if value})
    return rows
