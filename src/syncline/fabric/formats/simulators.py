"""Topology files of network simulators as clusters, cable by cable: htsim, ns-3 (HPCC, ASTRA-sim, SimAI), ASTRA-sim.

* htsim `.topo`: fat-trees of two or three tiers by radix, speed and latency of each tier
* ns-3 `topology.txt`: `nodes switches links`, the switches, then `a b rate delay error`; SimAI's first line also says
  how many GPUs a server has and which switches are NVSwitches, which become hosts
* ASTRA-sim `network.yml`: dimensions of `Ring`, `FullyConnected` and `Switch`; NPUs that are joined directly forward
  for each other
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from syncline.describe import units
from syncline.describe.document import read_document
from syncline.describe.mistakes import first_mistake
from syncline.describe.plain import JsonObject, JsonValue
from syncline.errors import DescriptionError, SynclineError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.formats.cabling import MAX_LEVEL, levels_from_hosts
from syncline.fabric.spec import ClusterSpec

_EACH_LINE = re.IGNORECASE | re.MULTILINE
_HTSIM = re.compile(r"^\s*Tiers\s+\d+\s*$", _EACH_LINE)
_MOST_CABLES = 2_000_000
_ASTRA: dict[str, Callable[[int], list[tuple[int, int]]]] = {
    "Ring": lambda count: [(i, (i + 1) % count) for i in range(count if count > 2 else count - 1)],
    "FullyConnected": lambda count: list(itertools.combinations(range(count), 2)),
    "Switch": lambda count: [],
}
"""Which NPUs of a dimension are joined directly."""


def _is_htsim(text: str) -> bool:
    return _HTSIM.search(text) is not None and re.search(r"^\s*Nodes\s+\d+", text, _EACH_LINE) is not None


def _is_astra(text: str) -> bool:
    return re.search(r"^\s*npus_count\s*:", text, re.MULTILINE) is not None


def _is_ns3(text: str) -> bool:
    first = text.lstrip().splitlines()[0].split() if text.strip() else []
    return len(first) in (3, 6) and all(word.isdecimal() for word in first[:5])


SIMULATORS = {"htsim": _is_htsim, "astra-sim": _is_astra, "ns3": _is_ns3}
"""What recognises a topology file of each simulator."""


def parse_simulator(kind: str, text: str, source: str, host: str | JsonObject | None = None) -> ClusterSpec:
    """Return the cluster of a topology file; `host` replaces what the file says or leaves open of hosts."""
    cluster = {"htsim": _htsim, "ns3": _ns3, "astra-sim": _astra}[kind](text, source)
    if host is not None:
        cluster["host"] = host
    try:
        return ClusterSpec.model_validate(cluster)
    except ValidationError as error:
        raise DescriptionError(f"the topology makes no cluster: {first_mistake(error)}.", where=source) from None


def _cluster(
    hosts: int, host: JsonValue, switches: list[JsonObject], cables: list[JsonObject], source: str
) -> JsonObject:
    if len(cables) > _MOST_CABLES:
        raise DescriptionError(
            f"{len(cables):,} cables are described; at most {_MOST_CABLES:,} can be read.", where=source
        )
    return {"hosts": hosts, "host": host, "network": {"topology": "explicit", "switches": switches, "cables": cables}}


def _host(number: int, hosts: int) -> str:
    return f"host-{number:0{max(2, len(str(hosts - 1)))}d}"


def _cable(a: str, b: str, rate_Bps: float, latency_s: float, count: int = 1) -> JsonObject:
    row: JsonObject = {"a": a, "b": b, "rate": rate_Bps, "latency": latency_s}
    return row if count == 1 else row | {"count": count}


def _htsim(text: str, source: str) -> JsonObject:
    head, tiers = _read_htsim(text, source)
    hosts, count = head["nodes"], head["tiers"]
    if count not in (2, 3) or len(tiers) != count:
        raise DescriptionError(f"{len(tiers)} of {count} tiers are described; htsim has two or three.", where=source)

    def of(tier: int, name: str, default: int | None = None) -> int:
        if name not in tiers[tier] and default is None:
            raise DescriptionError(f"tier {tier} has no {name}.", where=source)
        return tiers[tier].get(name, default if default is not None else 0)

    down, up = of(0, "radix_down"), of(0, "radix_up")
    pod = head.get("podsize", hosts) if count == 3 else hosts
    if hosts % down or hosts % pod or pod % down:
        raise DescriptionError(f"{hosts} nodes do not fill leaves of {down} and pods of {pod}.", where=source)
    leaves, per_pod = hosts // down, pod // down
    bundle = of(1, "bundle", 1)
    aggs_per_pod = up // bundle
    switches: list[JsonObject] = [{"name": f"tor-{i}", "level": 1, "group": i // per_pod} for i in range(leaves)]

    def wire(tier: int) -> tuple[float, float]:
        below = of(tier - 1, "switch_latency_ns", 0) / 2 if tier else 0.0
        latency = of(tier, "downlink_latency_ns") + of(tier, "switch_latency_ns", 0) / 2 + below
        return of(tier, "downlink_speed_gbps") * 1.25e8, latency * 1e-9

    cables = [_cable(f"{_host(i, hosts)}/nic-0", f"tor-{i // down}", *wire(0)) for i in range(hosts)]
    pods = hosts // pod
    switches += [{"name": f"agg-{i}", "level": 2, "group": i // aggs_per_pod} for i in range(pods * aggs_per_pod)]
    cables += [
        _cable(f"tor-{leaf}", f"agg-{leaf // per_pod * aggs_per_pod + j}", *wire(1), bundle)
        for leaf in range(leaves)
        for j in range(aggs_per_pod)
    ]
    if count == 3:
        ups, core_bundle = of(1, "radix_up"), of(2, "bundle", 1)
        each = ups // core_bundle
        switches += [{"name": f"core-{i}", "level": 3} for i in range(aggs_per_pod * each)]
        cables += [
            _cable(f"agg-{agg}", f"core-{agg % aggs_per_pod * each + j}", *wire(2), core_bundle)
            for agg in range(pods * aggs_per_pod) for j in range(each)
        ]  # fmt: skip
    return _cluster(hosts, {"gpu": "H100", "gpus": 1, "nics": 1}, switches, cables, source)


def _read_htsim(text: str, source: str) -> tuple[dict[str, int], list[dict[str, int]]]:
    head: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    at = head
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdecimal():
            raise DescriptionError(f'"{line.strip()[:60]}" is not a name and a number.', where=f"{source}:{number}")
        name, value = words[0].lower(), int(words[1])
        if name == "tier":
            at = {}
            tiers.append(at)
        else:
            at[name] = value
    if "nodes" not in head or "tiers" not in head:
        raise DescriptionError("the file says neither Nodes nor Tiers.", where=source)
    return head, tiers


def _ns3(text: str, source: str) -> JsonObject:
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    head = lines[0]
    if len(head) == 6:
        nodes, per_server, num_nvswitches, others, links = (int(word) for word in head[:5])
        num_switches, gpu = num_nvswitches + others, head[5]
    else:
        nodes, num_switches, links = (int(word) for word in head)
        per_server, num_nvswitches, gpu = 1, 0, "H100"
    names = [int(word) for word in lines[1][:num_switches]] if num_switches else []
    nvswitches, switches = set(names[:num_nvswitches]), names[num_nvswitches:]
    ends = nodes - num_switches
    # Switches may have any numbers (in HPCC's first example it is 0); hosts are the others, in order.
    place = {node: at for at, node in enumerate(node for node in range(nodes) if node not in set(names))}
    rows = lines[2 : 2 + links] if num_switches else lines[1 : 1 + links]
    if len(names) != num_switches or len(rows) != links:
        raise DescriptionError(f"the file declares {links} links and has {len(rows)}.", where=source)
    if ends % per_server:
        raise DescriptionError(f"{ends} GPUs do not fill servers of {per_server}.", where=source)
    unknown = next((word for row in rows for word in row[:2] if not word.isdecimal() or int(word) >= nodes), None)
    if unknown is not None:
        raise DescriptionError(f'a link ends at "{unknown}"; nodes are 0 to {nodes - 1}.', where=source)
    hosts, taken, cables = ends // per_server, dict.fromkeys(place, 0), []
    ends_of = [(int(row[0]), int(row[1])) for row in rows]
    joined = sum((a in place) != (b in place) and not nvswitches & {a, b} for a, b in ends_of)
    per_gpu = max(1, joined // max(ends, 1))

    def end(node: int) -> str:
        if node not in place:
            return f"switch-{node}"
        taken[node] += 1
        if taken[node] > per_gpu:
            raise DescriptionError(f"node {node} has more network links than the others.", where=source)
        nic = place[node] % per_server * per_gpu + taken[node] - 1
        return f"{host_names[place[node] // per_server]}/nic-{nic}"

    in_order = per_server > 1 or list(place.values()) == list(place)
    host_names = [_host(at, hosts) for at in range(hosts)] if in_order else [_host(node, nodes) for node in place]

    for row, (a, b) in zip(rows, ends_of, strict=True):
        if nvswitches & {a, b}:
            continue  # inside a host
        try:
            rate, delay = units.rate(row[2]), units.time(row[3])
        except (SynclineError, IndexError):
            raise DescriptionError(
                f'"{" ".join(row)}" is not a link: write source, destination, rate, delay and error rate.', where=source
            ) from None
        if len(row) > 4 and float(row[4]) > 0:
            raise DescriptionError(
                f"the link {a} - {b} loses packets ({row[4]}), and a cluster file has no loss.", where=source,
                hint="Write 0 there and simulate with --loss LINK=RATE.",
            )  # fmt: skip
        cables.append(_cable(end(a), end(b), rate, delay))
    network = [(a, b) for a, b in ends_of if not nvswitches & {a, b}]
    level = levels_from_hosts(network, place)
    host: JsonObject = {"gpu": _known_gpu(gpu), "gpus": per_server, "nics": per_server * per_gpu}
    joins: list[JsonObject] = [{"name": f"switch-{n}", "level": min(level.get(n, 1), MAX_LEVEL)} for n in switches]
    cluster = _cluster(hosts, host, joins, cables, source)
    if host["gpu"] != gpu:
        cluster["notes"] = (
            f"{gpu} is not in the catalogue, so an {host['gpu']} replaces it: change `gpu:` below `host:`"
        )
    return cluster if in_order else cluster | {"hosts": [{"names": host_names, "host": cluster.pop("host")}]}


def _known_gpu(name: str) -> str:
    """Return the GPU's name where the catalogue has it; an H100 stands in for what it does not know."""
    try:
        load_catalog().gpu(name)
    except SynclineError:
        return "H100"
    return name


def _astra(text: str, source: str) -> JsonObject:
    data = read_document(text, source).data
    names = ("topology", "npus_count", "bandwidth", "latency")
    columns: dict[str, list[Any]] = {
        name: data[name] for name in names if isinstance(data, dict) and isinstance(data.get(name), list)
    }
    if len(columns) != len(names) or len({len(column) for column in columns.values()}) != 1:
        raise DescriptionError("topology, npus_count, bandwidth and latency must be lists of one length.", where=source)
    unknown = next((kind for kind in columns["topology"] if kind not in _ASTRA), None)
    if unknown is not None:
        raise DescriptionError(f"no dimension is called {unknown}.", where=source, hint=f"One of: {', '.join(_ASTRA)}.")
    try:
        counts = [int(count) for count in columns["npus_count"]]
        wires = [
            (float(rate) * 1e9, float(latency) * 1e-9)
            for rate, latency in zip(columns["bandwidth"], columns["latency"], strict=True)
        ]
    except (TypeError, ValueError):
        raise DescriptionError("npus_count, bandwidth and latency are numbers.", where=source) from None
    kinds = [str(kind) for kind in columns["topology"]]
    if min(counts, default=0) < 1:
        raise DescriptionError("npus_count has a dimension without NPUs.", where=source)
    cables = sum(count - 1 if kind == "FullyConnected" else 2 for kind, count in zip(kinds, counts, strict=True))
    if math.prod(counts) * cables > 2 * _MOST_CABLES:
        raise DescriptionError(f"more than {_MOST_CABLES:,} cables are described, which is the most.", where=source)
    return (
        _astra_switched(counts, wires, source)
        if set(kinds) == {"Switch"}
        else _astra_direct(kinds, counts, wires, source)
    )


def _astra_switched(counts: list[int], wires: list[tuple[float, float]], source: str) -> JsonObject:
    """Return NPUs with a port for each dimension, and the switches of the dimensions."""
    total = math.prod(counts)
    switches: list[JsonObject] = []
    cables: list[JsonObject] = []
    for dim, wire in enumerate(wires):
        for group, npus in enumerate(_astra_groups(counts, dim)):
            switches.append({"name": f"dim-{dim}-{group}", "level": 1, "group": group, "rail": -1})
            cables += [_cable(f"{_host(npu, total)}/nic-{dim}", f"dim-{dim}-{group}", *wire) for npu in npus]
    return _cluster(total, {"gpu": "H100", "gpus": 1, "nics": len(counts)}, switches, cables, source)


def _astra_direct(kinds: list[str], counts: list[int], wires: list[tuple[float, float]], source: str) -> JsonObject:
    """Return NPUs that forward for each other: each is a host behind a router with the links of all dimensions."""
    total = math.prod(counts)
    switches: list[JsonObject] = [{"name": f"npu-{i}", "level": 1} for i in range(total)]
    between: list[JsonObject] = []
    out_Bps = [0.0] * total
    for dim, (kind, wire) in enumerate(zip(kinds, wires, strict=True)):
        for group, npus in enumerate(_astra_groups(counts, dim)):
            if kind == "Switch":
                switches.append({"name": f"dim-{dim}-{group}", "level": 2})
                ends = [(f"npu-{npu}", f"dim-{dim}-{group}") for npu in npus]
            else:
                ends = [(f"npu-{npus[a]}", f"npu-{npus[b]}") for a, b in _ASTRA[kind](len(npus))]
            between += [_cable(a, b, *wire) for a, b in ends]
            degree = Counter(end for pair in ends for end in pair)
            for npu in npus:
                out_Bps[npu] += wire[0] * degree[f"npu-{npu}"]
    cables = [_cable(f"{_host(i, total)}/nic-0", f"npu-{i}", out_Bps[i], 0.0) for i in range(total)]
    return _cluster(total, {"gpu": "H100", "gpus": 1, "nics": 1}, switches, cables + between, source)


def _astra_groups(counts: list[int], dim: int) -> list[list[int]]:
    """Return the NPUs that differ in one dimension only, group by group.

    >>> _astra_groups([2, 3], 1)
    [[0, 2, 4], [1, 3, 5]]
    """
    stride, count = math.prod(counts[:dim]), counts[dim]
    firsts = (npu for npu in range(math.prod(counts)) if npu // stride % count == 0)
    return [[first + stride * i for i in range(count)] for first in firsts]
