"""The GPUs that a scheduler gave a job, in its order: a host list, Slurm's, Kubernetes' or Ray's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from syncline.describe.hostlist import expand
from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric

_NUMBERS = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_NODE_LIST = re.compile(r"(?:^|\s)(?:NodeList|SLURM_(?:JOB_)?NODELIST)=(?P<list>[^\s]+)")
_DETAIL = re.compile(r"(?:^|\s)Nodes=(?P<list>\S+)\s.*?GRES=\S*?\(IDX:(?P<index>[0-9,-]+)\)")
_SLOTS = re.compile(r"(?:slots|max_slots)\s*=\s*([0-9]+)|:([0-9]+)\Z")
_GPU_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "GPU")


@dataclass(frozen=True)
class GrantedHost:
    """A host by the name its scheduler knows, and the GPUs of it that the job has (None: all)."""

    name: str
    gpus: tuple[int, ...] | None = None
    num_gpus: int | None = None


@dataclass(frozen=True)
class Allocation:
    """Hosts of a fabric in the scheduler's order, with the local GPUs of each that the job has."""

    hosts: tuple[int, ...]
    gpus: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    """What the scheduler calls them."""
    source: str

    @property
    def num_gpus(self) -> int:
        return sum(len(each) for each in self.gpus)

    def replaced(self, fabric: Fabric, old: str, new: str) -> Allocation:
        """Return the allocation with another host in the place of one of its own."""
        if old not in self.names:
            raise UsageError(f'"{old}" is not in the allocation.', hint=f"It has {', '.join(self.names[:6])} ...")
        fresh = allocation(fabric, [GrantedHost(new)], self.source)
        if new in self.names:
            raise UsageError(f'"{new}" is in the allocation already.', hint="Name a host the job does not have.")
        at = self.names.index(old)
        if len(fresh.gpus[0]) < len(self.gpus[at]):
            raise UsageError(f'"{new}" has {len(fresh.gpus[0])} GPUs, "{old}" gave {len(self.gpus[at])}.')

        def swapped(values: tuple, value: object) -> tuple:  # type: ignore[type-arg]
            return (*values[:at], value, *values[at + 1 :])

        return Allocation(
            swapped(self.hosts, fresh.hosts[0]), swapped(self.gpus, fresh.gpus[0][: len(self.gpus[at])]),
            swapped(self.names, new), self.source,
        )  # fmt: skip


def from_list(fabric: Fabric, text: str, source: str = "`hosts`") -> Allocation:
    """Return the hosts of "gpu[003-011,042]", or by number of "3-11,42"."""
    text = "".join(text.split())
    if _NUMBERS.fullmatch(text) and not set(text.split(",")) <= set(fabric.host_names):
        names = [fabric.host_names[number] for number in _numbers(text, fabric.num_hosts)]
    else:
        names = expand(text, source)
    return allocation(fabric, [GrantedHost(name) for name in names], source)


def read_allocation(fabric: Fabric, text: str, source: str) -> Allocation:
    """Return what a scheduler's file says: Kubernetes' or Ray's JSON, `scontrol` output, a hostfile."""
    shown = text.lstrip()
    granted = _from_json(shown, source) if shown[:1] in "[{" and shown[1:2] != "" else _from_text(text, source)
    if not granted:
        raise DescriptionError("no host was found.", where=source, hint=_FORMS)
    return allocation(fabric, granted, source)


_FORMS = (
    "Give `scontrol show job -d ID`, `scontrol show hostnames`, `kubectl get nodes|pods -o json`, "
    "`ray list nodes --format json` or a hostfile."
)


def allocation(fabric: Fabric, granted: Sequence[GrantedHost], source: str) -> Allocation:
    """Return granted hosts as those of a fabric."""
    known = {name: number for number, name in enumerate(fabric.host_names)}
    short: dict[str, list[int]] = {}
    for number, name in enumerate(fabric.host_names):
        short.setdefault(name.split(".")[0], []).append(number)
    hosts, gpus = [], []
    for each in granted:
        host = _host(fabric, each.name, known, short, source)
        if host in hosts:
            raise DescriptionError(f'"{each.name}" is named twice.', where=source, hint="Name every host once.")
        hosts.append(host)
        gpus.append(_gpus(fabric, each, host, source))
    if not hosts:
        raise DescriptionError("the allocation has no hosts.", where=source, hint='Write it as "gpu[001-004,007]".')
    return Allocation(tuple(hosts), tuple(gpus), tuple(each.name for each in granted), source)


def _host(fabric: Fabric, name: str, known: Mapping[str, int], short: Mapping[str, list[int]], source: str) -> int:
    if name in known:
        return known[name]
    near = short.get(name.split(".")[0], [])
    if len(near) == 1:  # "gpu001" and "gpu001.cluster.example" are one host
        return near[0]
    raise DescriptionError(
        f'{fabric.name} has no host "{name}".',
        where=source,
        hint=f"Its hosts are {fabric.host_names[0]} to {fabric.host_names[-1]}; "
        "give the cluster file your scheduler's names (`hosts: [{names: gpu[001-064], ...}]`).",
    )


def _gpus(fabric: Fabric, granted: GrantedHost, host: int, source: str) -> tuple[int, ...]:
    there = int((fabric.gpu_host == host).sum())
    wanted = granted.gpus if granted.gpus is not None else tuple(range(granted.num_gpus or there))
    if not wanted or max(wanted) >= there or len(set(wanted)) < len(wanted):
        raise DescriptionError(
            f"{granted.name} is listed with GPUs {', '.join(map(str, wanted)) or 'none'}, but it has {there}.",
            where=source,
        )
    return tuple(sorted(wanted))


def _numbers(text: str, num_hosts: int) -> list[int]:
    found: list[int] = []
    for piece in text.split(","):
        low, _, high = piece.partition("-")
        if int(high or low) >= num_hosts:
            raise DescriptionError(
                f"there is no host {high or low}: the cluster has hosts 0 to {num_hosts - 1}.", where="`hosts`"
            )
        found.extend(range(int(low), int(high or low) + 1))
    return found


def _from_text(text: str, source: str) -> list[GrantedHost]:
    """Read `scontrol show job` (with -d: which GPUs), an environment's node list, or one host a line."""
    details = [
        GrantedHost(name, tuple(_numbers(match["index"], 1 << 16)))
        for match in _DETAIL.finditer(text)
        for name in expand(match["list"], source)
    ]
    if details:
        return details
    lists = [m["list"] for m in _NODE_LIST.finditer(text) if m["list"] != "(null)"]
    if lists:
        return [GrantedHost(name) for name in expand(lists[0], source)]
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return list(chain.from_iterable(_line(line, source) for line in lines if line))


def _line(line: str, source: str) -> Iterable[GrantedHost]:
    """Read a line of a hostfile: `gpu001`, `gpu001 slots=8`, `gpu001:8`, `gpu[001-004]`."""
    slots = _SLOTS.search(line)
    name = re.split(r"[\s:]", line, maxsplit=1)[0]
    count = int(slots.group(1) or slots.group(2)) if slots else None
    return [GrantedHost(each, num_gpus=count) for each in expand(name, source)]


def _from_json(text: str, source: str) -> list[GrantedHost]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise DescriptionError(f"not JSON: {error}.", where=source, hint=_FORMS) from None
    items = data.get("items") if isinstance(data, dict) else data
    if isinstance(data, dict) and items is None:
        items = data.get("nodes") or (data.get("data") or {}).get("result", {}).get("result") or [data]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DescriptionError("this JSON is not a list of nodes.", where=source, hint=_FORMS)
    found = [granted for item in items if (granted := _item(item)) is not None]
    return list(dict.fromkeys(found))


def _item(item: Mapping[str, object]) -> GrantedHost | None:
    """Return the host of a Kubernetes node or pod, of a Ray node, or None where the job gets nothing of it."""
    kind, status = item.get("kind"), item.get("status")
    if kind == "Pod":
        spec = item.get("spec")
        name = spec.get("nodeName") if isinstance(spec, dict) else None
        return GrantedHost(str(name)) if name else None
    if "metadata" in item:
        meta = item["metadata"]
        room = status.get("allocatable") if isinstance(status, dict) else None
        return _counted(str(meta.get("name", "")) if isinstance(meta, dict) else "", room)
    if item.get("Alive") is False or item.get("state") not in (None, "ALIVE"):
        return None
    name = item.get("NodeManagerHostname") or item.get("node_name") or item.get("NodeName") or item.get("node_ip")
    return _counted(str(name or ""), item.get("Resources") or item.get("resources_total"))


def _counted(name: str, resources: object) -> GrantedHost | None:
    """Return a host with the GPUs its resources speak of; a node that has resources but no GPU (a head) is left out."""
    if not isinstance(resources, Mapping):
        return GrantedHost(name) if name else None
    count = next((resources[key] for key in _GPU_KEYS if key in resources), None)
    if count is None:
        return None if "cpu" in resources or "CPU" in resources else GrantedHost(name)
    return GrantedHost(name, num_gpus=int(float(str(count)))) if float(str(count)) >= 1 else None
