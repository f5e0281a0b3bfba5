"""An explicit graph: every switch and every cable by name."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from syncline.describe.plain import JsonObject
from syncline.describe.quantity import Metres, Rate, Seconds, Strict
from syncline.errors import FabricError
from syncline.fabric.catalog import Switch
from syncline.fabric.draft import UNKNOWN_CABLE, Draft
from syncline.fabric.host import nic_latency_s
from syncline.fabric.topology.network import NetworkSpec, Ports
from syncline.fabric.wiring import DeviceKind, Tier

TierName = Literal[
    "scale-up", "access", "leaf-spine", "spine-core", "group-local", "group-global", "wan", "optical"
]  # fmt: skip
_CABLE = re.compile(r"\s*(\S+?)(?:\s*<->\s*|\s+--?\s+)(\S+?)\s*(?::\s*(\S.*?))?(?:\s+x\s*(\d+))?\s*\Z")


class ExplicitSwitch(Strict):
    """One switch. `level` 1 is a leaf, 2 a spine, 3 a core; it places the switch in pictures and tier counts."""

    name: str = Field(min_length=1, max_length=120)
    model: str | None = None
    level: int = Field(default=1, ge=1, le=9)
    group: int = Field(default=0, ge=0)
    rail: int = Field(default=-1, ge=-1)
    kind: Literal["switch", "ocs"] = "switch"


class ExplicitCable(Strict):
    """One cable (or `count` equal ones) between two named devices.

    `latency` is what the devices at its ends add to the cable's own (default: half the crossing of each).
    `medium` names something that is not bought as a cable (a line, a chip's own links); such a link has its `rate` and
    its whole `latency` here.
    """

    a: str
    b: str
    link: str | None = None
    rate: Rate | None = None
    latency: Seconds | None = None
    length: Metres | None = None
    count: int = Field(default=1, ge=1, le=4096)
    tier: TierName | None = None
    cable: str | None = None
    """The kind of cable; default: the cheapest that reaches."""
    medium: str | None = None
    bond: int = Field(default=1, ge=1, le=64)
    """So many cables used as one link, whose `rate` is that of all together."""


class Explicit(NetworkSpec):
    """Cables as text, `leaf-a <-> spine-0 : NDR x2`, or as mappings with rate, latency and length of their own."""

    topology: Literal["explicit"]
    link: str = ""
    switches: tuple[ExplicitSwitch, ...] = ()
    cables: tuple[ExplicitCable, ...]
    racks: tuple[int, ...] = ()
    """The rack of each host; default: hosts whose first NIC goes to the same switch share one."""

    @field_validator("cables", mode="before")
    @classmethod
    def _texts(cls, cables: Any) -> Any:
        return [_from_text(_line(c)) if _is_line(c) else c for c in cables] if isinstance(cables, list) else cables

    @field_validator("switches", mode="before")
    @classmethod
    def _names(cls, switches: Any) -> Any:
        return [{"name": s} if isinstance(s, str) else s for s in switches] if isinstance(switches, list) else switches

    def build(self, draft: Draft, ports: Ports) -> None:
        ids = self._host_devices(draft, ports)
        crossing = self._nic_crossings(draft, ports)
        for switch in self.switches:
            if switch.name in ids:
                raise FabricError(f'two devices are called "{switch.name}".', hint="Give one another name.")
            model = self._model(draft, switch)
            (device,) = draft.add_switches(
                [switch.name],
                model,
                level=switch.level,
                group=switch.group,
                rail=switch.rail,
                site=ports.site,
                kind=DeviceKind[switch.kind.upper()],
            )
            ids[switch.name] = int(device)
            if isinstance(model, Switch):
                crossing[switch.name] = model.latency_s
        for cable in self.cables:
            self._lay(draft, cable, ids, crossing)
        ports.set_racks(draft, self._racks(draft, ports))

    def _host_devices(self, draft: Draft, ports: Ports) -> dict[str, int]:
        names: dict[str, int] = {}
        for block in ports.blocks:
            for h in range(block.num_hosts):
                host = draft.host_names[block.first_host + h]
                names |= {f"{host}/nic-{i}": int(nic) for i, nic in enumerate(block.nics[h])}
                names |= {f"{host}/gpu-{i}": int(gpu) for i, gpu in enumerate(block.gpus[h])}
        return names

    def _model(self, draft: Draft, switch: ExplicitSwitch) -> Switch | str:
        name = switch.model or self.switch
        if switch.kind == "ocs":
            return name or "OCS"
        return draft.catalog.switch(name) if name else "switch"

    def _nic_crossings(self, draft: Draft, ports: Ports) -> dict[str, float]:
        return {
            f"{draft.host_names[block.first_host + h]}/nic-{i}": nic_latency_s(draft.catalog, block.template.model)
            for block in ports.blocks
            for h in range(block.num_hosts)
            for i in range(block.nics.shape[1])
        }

    def _lay(self, draft: Draft, cable: ExplicitCable, ids: dict[str, int], crossing: dict[str, float]) -> None:
        for end in (cable.a, cable.b):
            if end not in ids:
                raise FabricError(
                    f'there is no device "{end}" for the cable {cable.a} <-> {cable.b}.',
                    hint="Name a switch of `switches:` or a NIC such as host-00/nic-0.",
                )
        a, b = np.full(cable.count, ids[cable.a]), np.full(cable.count, ids[cable.b])
        name = "" if cable.medium else cable.link or self.link
        tier = self._tier(cable)
        if not name:
            if cable.rate is None:
                raise FabricError(
                    f'the cable "{cable.a}" <-> "{cable.b}" has neither a link nor a rate.',
                    hint="Add `: NDR` or `rate:`.",
                )
            medium = cable.medium or UNKNOWN_CABLE
            draft.join(
                a,
                b,
                medium=medium,
                tier=tier,
                rate_Bps=cable.rate,
                latency_s=1e-6 if cable.latency is None else cable.latency,
                cable=UNKNOWN_CABLE if medium == UNKNOWN_CABLE else None,
            )
            return
        crossed = [crossing[end] for end in (cable.a, cable.b) if end in crossing]
        draft.cable(
            a,
            b,
            link=draft.catalog.link(name),
            tier=tier,
            length_m=cable.length or (self.lengths.access if tier is Tier.ACCESS else self.lengths.leaf_spine),
            rate_Bps=cable.rate,
            end_latency_s=sum(crossed) / 2 if cable.latency is None else cable.latency,
            kind=cable.cable,
            num_cables=cable.bond,
        )

    def _tier(self, cable: ExplicitCable) -> Tier:
        if cable.tier:
            return Tier[cable.tier.upper().replace("-", "_")]
        low, high = sorted(self._levels.get(end, 0) for end in (cable.a, cable.b))
        if low == 0:
            return Tier.ACCESS
        if low == high:
            return Tier.GROUP_LOCAL
        return Tier.LEAF_SPINE if low == 1 else Tier.SPINE_CORE

    @cached_property
    def _levels(self) -> dict[str, int]:
        return {switch.name: switch.level for switch in self.switches}

    def _racks(self, draft: Draft, ports: Ports) -> np.ndarray:
        """Return the racks listed, or else one for the hosts whose first cabled NIC goes to the same switch."""
        if self.racks:
            if len(self.racks) != ports.num_hosts:
                raise FabricError(
                    f"`racks` has {len(self.racks)} entries but there are {ports.num_hosts} hosts.",
                    hint="List one rack for each host, or leave `racks` out.",
                )
            return np.array(self.racks, np.int32)
        first: dict[str, str] = {}
        for cable in self.cables:
            for a, b in ((cable.a, cable.b), (cable.b, cable.a)):
                host, slash, _ = a.partition("/nic-")
                if slash:
                    first.setdefault(host, b)
        order = {name: i for i, name in enumerate(dict.fromkeys(first.values()))}
        hosts = [draft.host_names[b.first_host + h] for b in ports.blocks for h in range(b.num_hosts)]
        return np.array([order.get(first.get(host, ""), 0) for host in hosts], dtype=np.int32)


def _is_line(cable: Any) -> bool:
    return isinstance(cable, str) or (isinstance(cable, dict) and len(cable) == 1 and "<->" in str(next(iter(cable))))


def _line(cable: str | JsonObject) -> str:
    """Return a cable's line of text; YAML reads an unquoted `leaf-a <-> spine : NDR x2` as a mapping of one key."""
    if isinstance(cable, str):
        return cable
    ((ends, rest),) = cable.items()
    return f"{ends} : {rest}"


def _from_text(text: str) -> JsonObject:
    match = _CABLE.match(text)
    if match is None:
        raise ValueError(f'"{text}" is not a cable; write "leaf-a <-> spine-0 : NDR x2"')
    a, b, link, count = match.groups()
    return {"a": a, "b": b, "link": link, "count": int(count or 1)}
