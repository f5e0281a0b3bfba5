"""One known fault: a record that a lab, a simulator, a captured tree and a log can all carry out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tests.drill.healthy import HOSTS, JOB, TABLE, Logs, glog, iso, kernel_log, syslog

from syncline.errors import FaultError
from syncline.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.faults import FailedPart as Standing
from syncline.fabric.faults import apply_faults
from syncline.fault.fault import Fault, FaultKind, parse_faults

AT_S = 1000
"""When, in the run, a planted fault happens."""


@dataclass(frozen=True)
class LabForm:
    """How a lab shows a fault: `by` is how to look, `finds` are the rules of which one must name the place.

    `sets` are variables of the host's processes, `does` and `undoes` commands on the host, `strays` lets its rank call
    another collective; `happens` replaces the fault's own where a look is shorter than a run. `also` are consequences
    that may be found anywhere.
    """

    by: str
    finds: tuple[str, ...]
    also: tuple[str, ...] = ()
    happens: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)
    does: str = ""
    undoes: str = ""
    strays: bool = False


@dataclass(frozen=True)
class KnownFault:
    """What breaks, and every way to make it break; a way that does not exist is empty.

    `happens` is a text for `parse_faults` with {access} (a cable from a host), {uplink} (a cable between switches) and
    {host} in it. `plant` names a change of a tree in `tests/auditing/samples`. `log` adds lines to healthy logs.
    `rules` must be found by diagnosis, `first` before all others.
    """

    id: str
    title: str
    rules: tuple[str, ...]
    first: str
    log: tuple[Mapping[str, Any], ...]
    happens: str = ""
    plant: str = ""
    lab: LabForm | None = None

    def happening(self, fabric: Fabric, host: int = 1) -> tuple[Fault, ...]:
        """Return the faults for a lab of this fabric, with their times; none if it is not one of the network."""
        return parse_faults([self.worded(self.happens, fabric, host)])

    def in_lab(self, fabric: Fabric, host: int = 1) -> tuple[Fault, ...]:
        """Return the faults for a look at a running lab, which is shorter than a run."""
        own = self.lab.happens if self.lab else ""
        return parse_faults([self.worded(own or self.happens, fabric, host)])

    def place(self, fabric: Fabric, host: int = 1) -> tuple[str, ...]:
        """Return what a finding on this fault in a lab has to name: one of these."""
        told = ((self.lab.happens if self.lab else "") or self.happens) + (self.lab.does if self.lab else "")
        if "{uplink}" in told:
            a, b = _uplink(fabric).split(" <-> ")
            return tuple(f"{x} {way} {y}" for way in ("<->", "->") for x, y in ((a, b), (b, a)))
        other = (fabric.host_names[_other(host)],) if "{other" in told else ()
        rank = (f"rank {host}",) if self.lab and self.lab.strays else ()
        return (fabric.host_names[host], *other, *rank)

    def worded(
        self, text: str, fabric: Fabric, host: int = 1, address: Callable[[str], str] = lambda name: name
    ) -> str:
        """Return a text with the places of a fabric in it."""
        name, other = fabric.host_names[host], fabric.host_names[_other(host)]
        words = {"host": name, "other": other, "access": "", "uplink": "", "other_address": ""}
        words |= {"access": _access(fabric, host)} if "{access}" in text else {}
        words |= {"uplink": _uplink(fabric)} if "{uplink}" in text else {}
        words |= {"other_address": address(other)} if "{other_address}" in text else {}
        return _replaced(text, words)

    def on(self, fabric: Fabric, host: int = 1) -> Fabric:
        """Return the fabric with the fault standing in it: cables down or slow; other kinds have no standing form."""
        standing = [made for fault in self.happening(fabric, host) if (made := _standing(fault, fabric)) is not None]
        if not standing:
            raise FaultError(f"{self.id} is not a state of cables.", hint="Inject it in the lab, or plant it in a log.")
        return apply_faults(fabric, tuple(standing[:1]))

    def planted(self, logs: Logs) -> Logs:
        """Return the logs as they would be had it happened in the middle of the run."""
        result = {name: list(lines) for name, lines in logs.items()}
        for change in self.log:
            host = HOSTS[int(change.get("host", 2)) - 1]
            name = {"kernel": kernel_log(host), "table": TABLE}.get(change.get("file", ""), JOB)
            if "without" in change:
                result[name] = [x for x in result[name] if not (change["without"] in x and f" {host}:" in x)]
            lines = [_filled(line, host, i) for i, line in enumerate(change.get("lines", ()))]
            kept = result.get(name, [])
            result[name] = lines + kept if change.get("at") == "start" else kept + lines
        return result


@cache
def known_faults() -> dict[str, KnownFault]:
    """Return the library by id."""
    rows = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8"))
    return {
        row["id"]: KnownFault(
            row["id"], row["title"], tuple(row["rules"]), next(iter(row["rules"]), ""), tuple(row["log"]),
            row.get("happens", ""), row.get("plant", ""), _lab_form(row.get("lab")),
        )
        for row in rows
    }  # fmt: skip


def _lab_form(row: Mapping[str, Any] | None) -> LabForm | None:
    if row is None:
        return None
    return LabForm(**{**row, "finds": tuple(row["finds"]), "also": tuple(row.get("also", ()))})


def _other(host: int) -> int:
    return 0 if host else -1


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text


def _filled(line: str, host: str, number: int) -> str:
    at = AT_S + number
    peer = HOSTS[0] if host != HOSTS[0] else HOSTS[1]
    words = {"host": host, "peer": peer, "iso": iso(at), "syslog": syslog(at), "glog": glog(at + 600),
             "nccl": f"[{iso(at)}] {host}:4003:4203 [3] transport/net_ib.cc:1299 NCCL WARN",
             "info": f"[{iso(1)}] {host}:4003:4103 [3] NCCL INFO",
             "kernel": f"{syslog(at)} {host} kernel:"}  # fmt: skip
    return _replaced(line, words)


def _access(fabric: Fabric, host: int) -> str:
    """Return the first cable from a host's first NIC to its switch, as both ends."""
    nics = fabric.nics[fabric.devices.host[fabric.nics] == host]
    links = fabric.links
    rows = np.flatnonzero(np.isin(links.src, nics) & (links.tier == Tier.ACCESS))
    if not len(rows):
        raise FaultError(f"{fabric.host_names[host]} has no cable to a switch.", hint="Name another host.")
    return fabric.link_name(int(rows[0])).replace("->", "<->")


def _uplink(fabric: Fabric) -> str:
    links, kinds = fabric.links, fabric.devices.kind
    between = (kinds[links.src] == DeviceKind.SWITCH) & (kinds[links.dst] == DeviceKind.SWITCH)
    rows = np.flatnonzero(between)
    return fabric.link_name(int(rows[0])).replace("->", "<->") if len(rows) else _access(fabric, 0)


def _standing(fault: Fault, fabric: Fabric) -> Standing | None:
    if fault.kind not in (FaultKind.DOWN, FaultKind.RATE):
        return None
    where: dict[str, Any] = {"link": fault.target} if "->" in fault.target else {"device": fault.target}
    if fault.kind is FaultKind.DOWN:
        return Standing(**where)
    rate = fault.rate_Bps or (fault.share or 1.0) * _rate(fabric, fault.target)
    return Standing(**where, rate=rate, which=0 if "link" in where else None)


def _rate(fabric: Fabric, target: str) -> float:
    a, b = (fabric.device(part.strip()) for part in target.replace("<->", "->").split("->"))
    links = fabric.links
    return float(links.rate_Bps[(links.src == a) & (links.dst == b)].max())
