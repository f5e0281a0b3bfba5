"""From a read graph to an explicit cluster description that builds an equal fabric.

Hosts come from the writer's note (or a host model), switches and cables from the graph, one by one. What happens
inside a host is the model's business: the built fabric is compared with the graph, and edges that are slower, later
or down become faults; a graph that contradicts the host model is an error.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from syncline.describe.mistakes import first_mistake
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.build import build
from syncline.fabric.catalog import Catalog, load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.faults import FailedPart
from syncline.fabric.formats.cabling import MAX_LEVEL, levels_from_hosts
from syncline.fabric.formats.graphml import FabricGraph, GraphCable, GraphDevice
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text

_ROUTINGS = ("ecmp", "adaptive", "spray", "static")
_CLOSE = 1e-9


def graph_cluster(graph: FabricGraph, host: str | JsonObject | None = None) -> ClusterSpec:
    """Return the explicit cluster of a graph, compared with what it builds."""
    if not graph.note.get("host_names"):
        return _foreign(graph, host)
    data: dict[str, Any] = dict(graph.note)
    names, routing = list(map(str, data.pop("host_names"))), data.pop("routing", "ecmp")
    data.pop("joins_chips", None)
    try:
        _name_hosts(data, names)
        catalog = load_catalog().with_parts(data.get("parts") or {})
        _lay_networks(data, graph, catalog, str(routing))
        spec = ClusterSpec.model_validate(data)
    except ValidationError as error:
        raise DescriptionError(f"the graph's note does not fit: {first_mistake(error)}.", where=graph.source) from None
    except (TypeError, KeyError, AttributeError) as error:
        raise DescriptionError(f"the graph's note is damaged ({error}).", where=graph.source) from None
    return spec.model_copy(update={"faults": _faults(build(spec), graph)})


def _name_hosts(data: dict[str, Any], names: list[str]) -> None:
    """Replace every group's count by the names of its hosts, in order."""
    groups = [*data.get("hosts", ()), *(g for site in data.get("sites", ()) for g in site["hosts"])]
    counts = [len(g["names"]) if g.get("names") else g.get("count") for g in groups]
    known = sum(count for count in counts if isinstance(count, int))
    at = 0
    for group, count in zip(groups, counts, strict=True):
        size = count if isinstance(count, int) else len(names) - known
        group.pop("count", None)
        group["names"] = names[at : at + size]
        at += size


def _lay_networks(data: dict[str, Any], graph: FabricGraph, catalog: Catalog, routing: str) -> None:
    sites = data.get("sites") or [data]
    for number, site in enumerate(sites):
        prefix = f"{site['name']}/" if data.get("sites") else ""
        network = _network(graph, number, prefix, catalog)
        if network is None:
            continue
        hosts = [name for group in site["hosts"] for name in group["names"]]
        network["racks"] = _racks(graph, hosts)
        if routing in _ROUTINGS:
            network["routing"] = routing
        site["network"] = network


def _network(graph: FabricGraph, site: int, prefix: str, catalog: Catalog) -> JsonObject | None:
    """Return one site's switches and cables; scale-up crossbars and WAN lines come from the hosts and `wan`."""
    devices = graph.devices
    boxes = [d for d in devices.values() if d.kind in ("switch", "ocs") and d.site == site and not _is_border(d, graph)]
    inside = {d.name for d in devices.values() if d.site == site}
    cables = [
        _explicit_cable(cable, prefix, catalog)
        for cable in graph.cables
        if cable.a in inside and cable.b in inside and _is_laid(cable, graph) and cable.tier != "wan"
    ]
    if not boxes and not cables:
        return None
    switches = [_explicit_switch(box, prefix, catalog) for box in boxes]
    return {"topology": "explicit", "switches": switches, "cables": cables}


def _is_border(device: GraphDevice, graph: FabricGraph) -> bool:
    return bool(graph.note.get("wan")) and device.part == "border router"


def _is_laid(cable: GraphCable, graph: FabricGraph) -> bool:
    """Say whether the network lays this cable, rather than the host model or the scale-up domain."""
    a, b = graph.devices[cable.a], graph.devices[cable.b]
    if a.host and a.host == b.host:
        # The links of a chip torus belong to the network even between chips of one host.
        return bool(graph.note.get("joins_chips")) and (a.kind, b.kind) == ("gpu", "gpu")
    return "nvswitch" not in (a.kind, b.kind)


def _explicit_switch(box: GraphDevice, prefix: str, catalog: Catalog) -> JsonObject:
    row: JsonObject = {"name": box.name.removeprefix(prefix), "level": max(1, box.level), "group": box.group}
    if box.kind == "ocs":
        return row | {"kind": "ocs", "model": box.part, "rail": box.rail}
    if box.part in catalog.names("switch"):
        row["model"] = box.part
    return row | ({"rail": box.rail} if box.rail >= 0 else {})


def _explicit_cable(cable: GraphCable, prefix: str, catalog: Catalog) -> JsonObject:
    row: JsonObject = {"a": cable.a.removeprefix(prefix), "b": cable.b.removeprefix(prefix), "rate": cable.rate_Bps}
    if cable.tier:
        row["tier"] = cable.tier
    if cable.medium not in catalog.names("link") or cable.cable not in catalog.names("cable") or cable.length_m <= 0:
        return row | {"medium": cable.medium or "cable", "latency": cable.latency_s}
    own = catalog.cable(cable.cable).delay_s(cable.length_m)
    row |= {"link": cable.medium, "cable": cable.cable, "length": cable.length_m}
    if cable.num_cables > 1:
        row["bond"] = cable.num_cables
    return row | {"latency": _rest(cable.latency_s, own)}


def _rest(total: float, own: float) -> float:
    """Return what must be added to `own` to get `total` again, to the last bit."""
    rest = max(0.0, total - own)
    for step in (rest, math.nextafter(rest, 0), math.nextafter(rest, 1)):
        if own + step == total:
            return step
    return rest


def _racks(graph: FabricGraph, hosts: list[str]) -> list[int]:
    rack = {device.host: device.group for device in graph.devices.values() if device.host}
    missing = next((name for name in hosts if name not in rack), None)
    if missing is not None:
        raise DescriptionError(f'the graph has no device of host "{missing}".', where=graph.source)
    return [rack[name] for name in hosts]


def _faults(fabric: Fabric, graph: FabricGraph) -> tuple[FailedPart, ...]:
    """Compare the built fabric with the graph, and return what the graph's links lack as faults."""
    built = _by_ends(fabric)
    wanted: dict[tuple[str, str], list[GraphCable]] = defaultdict(list)
    for cable in graph.cables:
        wanted[_ends(cable.a, cable.b)].append(cable)
    unequal = {ends for ends in {*built, *wanted} if len(built.get(ends, ())) != len(wanted.get(ends, ()))}
    if unequal or set(graph.devices) != {fabric.device_name(i) for i in range(len(fabric.devices))}:
        raise _contradiction(graph, fabric, unequal)
    faults = []
    for ends, cables in wanted.items():
        for which, (link, cable) in enumerate(zip(built[ends], cables, strict=True)):
            change = _change(fabric, link, cable)
            if change is not None:
                place: JsonObject = {"link": f"{ends[0]} <-> {ends[1]}", "which": which}
                faults.append(FailedPart.model_validate(place | change))
    return tuple(faults)


def _change(fabric: Fabric, link: int, cable: GraphCable) -> dict[str, float] | None:
    change: dict[str, float] = {}
    if not cable.up:
        return change
    if not math.isclose(fabric.links.rate_Bps[link], cable.rate_Bps, rel_tol=_CLOSE):
        change["rate"] = cable.rate_Bps
    if not math.isclose(fabric.links.latency_s[link], cable.latency_s, rel_tol=_CLOSE, abs_tol=1e-15):
        change["latency"] = cable.latency_s
    return change or None


def _by_ends(fabric: Fabric) -> dict[tuple[str, str], list[int]]:
    links: dict[tuple[str, str], list[int]] = defaultdict(list)
    names = [fabric.device_name(i) for i in range(len(fabric.devices))]
    for link in range(0, len(fabric.links), 2):
        links[_ends(names[fabric.links.src[link]], names[fabric.links.dst[link]])].append(link)
    return links


def _ends(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a <= b else (b, a)


def _contradiction(graph: FabricGraph, fabric: Fabric, unequal: Iterable[tuple[str, str]]) -> DescriptionError:
    built = {fabric.device_name(i) for i in range(len(fabric.devices))}
    extra, gone = sorted(set(graph.devices) - built), sorted(built - set(graph.devices))
    if extra or gone:
        text = f'a device "{(extra or gone)[0]}" is {"in the graph" if extra else "missing from the graph"}'
    else:
        text = "the number of edges between {} and {} is another".format(*min(unequal))
    return DescriptionError(
        f"the graph does not fit its hosts' models: {text}.",
        where=graph.source,
        hint="Change switches and cables between hosts freely; what is inside a host is set by its model.",
    )


def _foreign(graph: FabricGraph, host: str | JsonObject | None) -> ClusterSpec:
    """Read a graph of host and switch nodes: each host's NICs are dealt over its edges."""
    if host is None:
        raise DescriptionError(
            "the graph does not say what its hosts are.",
            where=graph.source,
            hint='Name a host model such as "dgx-h100".',
        )
    spec = HostSpec.model_validate(host_from_text(host))
    num_nics = spec.resolve(load_catalog()).num_nics
    hosts = [d.name for d in graph.devices.values() if d.kind == "host"]
    if not hosts:
        raise DescriptionError('no node has kind "host".', where=graph.source)
    if num_nics == 0:
        raise DescriptionError("hosts of that model have no NIC.", where=graph.source, hint="Name another host model.")
    used: Counter[str] = Counter()

    def end(name: str) -> str:
        if graph.devices[name].kind != "host":
            return name
        used[name] += 1
        return f"{name}/nic-{(used[name] - 1) % num_nics}"

    levels = _foreign_levels(graph)
    cables = [
        {"a": end(c.a), "b": end(c.b), "rate": c.rate_Bps, "latency": c.latency_s, "medium": c.medium or "cable"}
        for c in graph.cables
    ]
    switches = [{"name": d.name, "level": levels[d.name]} for d in graph.devices.values() if d.kind != "host"]
    network = {"topology": "explicit", "switches": switches, "cables": cables}
    group = {"names": hosts, "host": spec.model_dump(exclude_none=True)}
    return ClusterSpec.model_validate({"hosts": [group], "network": network, "source": f"GraphML {graph.source}"})


def _foreign_levels(graph: FabricGraph) -> dict[str, int]:
    """Return each switch's level: its own, or else its distance from the nearest host."""
    hosts = [d.name for d in graph.devices.values() if d.kind == "host"]
    distance = levels_from_hosts(((cable.a, cable.b) for cable in graph.cables), hosts)
    return {d.name: min(MAX_LEVEL, max(1, d.level or distance.get(d.name, 1))) for d in graph.devices.values()}
