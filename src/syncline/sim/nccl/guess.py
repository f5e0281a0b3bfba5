"""A system from free text such as "8x H100 nodes, InfiniBand NDR 8x400Gb/s": for rows that no systems file describes.

Looks for a cloud instance, a machine, a GPU, NICs with their rate, a kind of network and what ran, and takes the
catalogue's usual host for what it found. What was not in the text is assumed and listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.constants import read_data
from syncline.sim.nccl.describe import NcclSoftware, from_spec, usual_release
from syncline.sim.nccl.job import CARDS_OF_A_SOCKET
from syncline.sim.nccl.system import NcclSystem

_IB = {100: "EDR", 200: "HDR", 400: "NDR", 800: "XDR"}
_IB_NAMES = {"edr": "EDR", "hdr100": "HDR100", "hdr": "HDR", "ndr200": "NDR200", "ndr": "NDR", "xdr": "XDR"}
_PORTS = (1, 10, 25, 40, 50, 100, 200, 400, 800)
_TOTALS = (1600, 3200, 6400)
_SPEED = r"(?:gb/s|gbps|gbit/?s?|gbe|gb|g)\b"
_NICS = re.compile(rf"\b(\d{{1,2}})\s*[x×]\s*(\d{{2,3}})\s*{_SPEED}", re.IGNORECASE)
_NIC_COUNT = re.compile(
    r"\b(\d{1,2})\s*(?:x\s*)?(?:(?:infiniband|ib)\s+)?(?:nics?|hcas?|connectx-?\d|cx-?\d|cassini|slingshot(?:-1[01])?|[ehnx]dr\d*)\b",
    re.IGNORECASE,
)
# A bare "80GB" is memory, not a port.
_RATE = re.compile(r"(?<![\w×.])(\d{1,4})\s*(?:gb/s|gbps|gbit/?s?|gbe|g)\b", re.IGNORECASE)
#: GB and Gb differ by eight: a rate in bytes is that of a GPU or a port where it says so, else not the network's.
_BYTES = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:GB/s|GBps|GByte/s)(\s*(?:/|per\s+|a\s+)\s*(?:GPU|NIC|port|rail|HCA)\b)?(?![/\w])",
    re.IGNORECASE,
)
_OF_GPU = re.compile(rf"\b\d{{2,3}}\s*{_SPEED}\s*(?:/|per\s+|a\s+)\s*gpu\b", re.IGNORECASE)
_ENV = re.compile(r"\b((?:NCCL|FI)_[A-Z0-9_]+)=([^\s;)\"']+)")
_SWITCHED = ("nvswitch", "mesh", "cube_mesh")
_PLAIN_ETHERNET = r"\bsockets?\b|\btcp\b|\brocev?2?\b|ethernet|\d ?gbe\b|spectrum"
#: Said of hosts whose racks share NVLink, where each host is in another rack.
_APART = re.compile(
    r"\b(?:different|distinct|separate)\s+(?:nvlink\s+|nvl72\s+)?(?:domains|racks)\b|\bone host (?:a|per) rack\b"
)
#: Racks cut into smaller domains: "three NVL8 partitions".
_PARTITION = re.compile(r"\bnvl[- ]?(\d{1,2})\s+(?:partitions?|domains?)\b")
_ONE_PROCESS = re.compile(r"(?:one|single|1)[- ]process|(?:^|\s)-g\s*([2-9]|1\d)\b|one process drives", re.IGNORECASE)


def guess(system: str, notes: str, num_hosts: int, gpus_per_host: int) -> NcclSystem:
    """Return the system that free text seems to describe, or raise when it names no GPU."""
    text = _in_bits(f"{system} {notes}").lower()
    found = _found(text)
    certain = bool(found.get("certain", False))
    software = _software(system, notes, num_hosts, gpus_per_host)
    host = {**_model(found["host"], _in_bits(system).lower(), gpus_per_host), **found.get("change", {})}
    if not certain:
        host |= {"nics": gpus_per_host} if _OF_GPU.search(text) else _nic_changes(text, gpus_per_host)
    description: JsonObject = {"hosts": 1, "host": host}
    if num_hosts > 1:
        wire = found["link"] if certain else _link(text, found["link"])
        description["network"] = f"{'rail-optimized' if wire in _IB.values() else 'fat-tree'} {wire}"
        if re.search(r"\btcp[ /]sockets?\b|kernel tcp|\bsockets?\b|\btcp\b(?!x)", text):
            software["network"] = "tcp"
    if num_hosts > 1 and _only_nics(software["env"] or {}):
        nics = host.get("nics") or load_catalog().host(found["host"]).num_nics
        description["host"] = {**host, "nics": max(int(nics) // gpus_per_host, 1)}
        num_hosts, gpus_per_host = num_hosts * gpus_per_host, 1
    spec = ClusterSpec.model_validate(description)
    found_system = usual_release(from_spec(spec, num_hosts, gpus_per_host, software), "nccl" in software)
    if part := _PARTITION.search(text):
        found_system = replace(found_system, nvlink_domain=max(int(part.group(1)), gpus_per_host))
    elif found_system.num_islands == 1 and _APART.search(text):
        found_system = replace(found_system, nvlink_domain=gpus_per_host)
    found_system = replace(found_system, peer_access=found_system.peer_access and not _refuses_peers(text))
    if not found_system.nvlink_GBps and "bridge" not in text:
        found_system = _slots(found_system, text)
    elif not found_system.nvlink_GBps and gpus_per_host == 2 and (bridge_GBps := _bridge_GBps(text)):
        found_system = replace(found_system, nvlink_Bps=bridge_GBps * 1e9)
    own = "gpu" in found and found_system.nvlink_GBps
    return replace(found_system, gpu=found["gpu"], nvlink_Bps=None) if own else found_system


def _bridge_GBps(text: str) -> float:
    """Return what NCCL counts for the bridge between two cards, 0 where it is not known."""
    rows = read_data("nccl_text")["bridges"]
    return float(next((row["GBps"] for row in rows if re.search(row["text"], text)), 0.0))


_NO_PEERS = re.compile(
    r"\b(?:no|not|without|refuses?)\s+(?:\w+\s+)?(?:peer access|p2p)"
    r"|(?:peer access|p2p)\W+(?:is\s+)?(?:off|disabled|refused)"
)
#: Cards whose own slot is of the third generation.
_GEN3 = re.compile(r"\brtx ?20[5-9]0|\b20[5-9]0 ?(?:ti|super)|\bt4\b|\bgtx\b|\btitan\b|\bp(?:40|100)\b")
#: What NCCL counts for sixteen lanes of a generation, GB/s one way.
_LANES_GBps = {3: 12.0, 4: 24.0, 5: 48.0}


def _refuses_peers(text: str) -> bool:
    """Say whether the driver refuses GeForce cards peer access: always, but for patched ones."""
    if _NO_PEERS.search(text):
        return True
    return bool(re.search(r"geforce|\brtx ?[2-5]0[5-9]0", text)) and not re.search(
        r"peer access|\bp2p|nccl_p2p_level", text
    )


def _slots(system: NcclSystem, text: str) -> NcclSystem:
    """Return cards with the PCIe generation that the text states or their part has, and the switch they share.

    Without peer access what one card sends another goes up a switch's uplink and down again, and so does what the
    other cards below it send: they share it.
    """
    stated = re.search(r"\bpcie?\W{0,2}(?:gen\W?)?([345])(?:\.0)?\b", text)
    generation = int(stated.group(1)) if stated else 3 if _GEN3.search(text) else 0
    if generation:
        system = replace(system, pcie_Bps=_LANES_GBps[generation] * 1e9)
    shared = not system.peer_access and re.search(r"\bswitch\b|\bplx\b|\bpix\b", text)
    return replace(system, uplink_cards=min(system.gpus_per_host, CARDS_OF_A_SOCKET)) if shared else system


def _only_nics(env: Mapping[str, str]) -> bool:
    """Say whether GPUs of one host may reach each other through NICs alone: each is a host of its own then."""
    return env.get("NCCL_P2P_DISABLE") == "1" and env.get("NCCL_SHM_DISABLE") == "1"


def words_of(system: NcclSystem) -> str:
    """Return in words what a system was taken for."""
    stated = f"{system.num_hosts} hosts of {system.gpus_per_host} {system.gpu}" if system.num_hosts > 1 else (
        f"one host of {system.gpus_per_host} {system.gpu}"
    )  # fmt: skip
    if system.num_islands > 1:
        stated += f", {system.num_nics} x {system.nic_rate_Bps * 8 / 1e9:g} Gb/s {system.network} a host"
    return f"{stated}, NCCL {system.nccl[0]}.{system.nccl[1]}"


def _in_bits(text: str) -> str:
    """Return a text with the network's rates in Gb/s and without those of anything else in bytes."""

    def bits(rate: re.Match[str]) -> str:
        if "B" not in rate.group().replace(rate.group(2) or "", ""):
            return rate.group()
        return f"{8 * float(rate.group(1)):g} Gb/s{rate.group(2)}" if rate.group(2) else " "

    return _BYTES.sub(bits, re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))


def hosts_in(system: str, notes: str, num_gpus: int) -> int:
    """Return how many hosts a row without that number had: as its text says, else as its usual host needs."""
    text = f"{system} {notes}".lower()
    stated = re.search(r"\b(\d{1,5})[- ]?(?:nodes?|hosts?|vms?|instances?|servers?|trays?)\b", text)
    pair = re.search(rf"\b(\d{{1,5}})\s*[x×]\s*(\d{{1,2}})\b(?!\s*{_SPEED})", text)
    if stated and int(stated.group(1)) > 0 and num_gpus % int(stated.group(1)) == 0:
        return int(stated.group(1))
    if pair and int(pair.group(1)) * int(pair.group(2)) == num_gpus:
        return int(pair.group(1))
    model = load_catalog().host(_found(text)["host"])
    return max(1, -(-num_gpus // model.num_gpus))


def _found(text: str) -> Any:
    """Return the row of the table that the text names: host, usual link, whether certain, what to change."""
    table = read_data("nccl_text")
    for row in table["machines"]:
        if re.search(row["text"], text):
            return dict(row)
    for row in table["gpus"]:
        if re.search(rf"(?<![a-z0-9])(?:{row['text']})(?![0-9])", text):
            return dict(row)
    raise DescriptionError(
        "the text names no GPU or machine that syncline knows.", hint="Describe it in a systems file."
    )


def _model(host: str, text: str, gpus: int) -> JsonObject:
    """Return the host with what the text says of its inside: cards on PCIe, a bridge between pairs, four on a board."""
    catalog = load_catalog()
    model = catalog.host(host)
    switched = re.search(r"nvswitch|\bsxm\d?|\bhgx\b|\bdgx\b|nvlink\s*\d", text)
    if re.search(r"\bpcie?\b", text) and not switched and model.scale_up_topology in _SWITCHED:
        bridged = re.search(r"nvlink|\bnvl\b|bridge", text) and gpus == 2
        return {"model": host, "scale_up": "mesh" if bridged else "pcie", "gpus": max(gpus, 2), **_pcie_card(model.gpu)}
    if host == "dgx-a100" and gpus == 4 and re.search(r"\b4\s*x?\s*a100|a100\s*x\s*4", text):
        return {"model": "hgx-a100-4"}
    return {"model": host}


def _pcie_card(gpu: str) -> dict[str, str]:
    card = {"H100": "H100-PCIe-80GB", "A100": "A100-PCIe-80GB", "V100": "V100-PCIe-32GB"}.get(gpu[:4])
    return {"gpu": card} if card else {}


def _software(system: str, notes: str, num_hosts: int, gpus_per_host: int) -> NcclSoftware:
    text = f"{system} {notes}"
    lower = text.lower()
    env = {name: value.rstrip(",") for name, value in _ENV.findall(text)}
    software: NcclSoftware = {"env": env}
    if release := re.search(r"\b(?:nccl|rccl)[ _v=-]*(2[._]\d+)", lower):
        software["nccl"] = release.group(1).replace("_", ".")
    if re.search(r"\bsharp\b", lower) and num_hosts > 1 and not re.search(r"(?:no|without|nv\w* )\s*sharp", lower):
        software["sharp"] = True
    if one := _ONE_PROCESS.search(text):
        software["ranks_per_process"] = min(int(one.group(1) or gpus_per_host), gpus_per_host)
    if re.search(r"pytorch timing|torch timing|all_reduce_bench|torch\.distributed|blocking calls", lower):
        software["timing"] = "torch"
    if re.search(r"nvls[ =]*(?:off|disabled|0)|no nvls|without nvls", lower):
        env.setdefault("NCCL_NVLS_ENABLE", "0")
    return software


def _rate(text: str) -> int:
    """Return the rate of a port in Gb/s that the text names, or 0; 3200 Gb/s of a host are eight ports."""
    rates = [int(m.group(2)) for m in _NICS.finditer(text)] + [int(m.group(1)) for m in _RATE.finditer(text)]
    known = [r // 8 if r in _TOTALS else r for r in rates if r in _PORTS or r in _TOTALS]
    return known[0] if known else 0


def _nic_changes(text: str, gpus: int) -> dict[str, int]:
    """Return the NICs of a host that carry its GPUs' traffic: those beyond a multiple of the GPUs serve storage."""
    counts = [int(m.group(1)) for m in _NICS.finditer(text) if int(m.group(2)) in _PORTS]
    counts += [int(m.group(1)) for m in _NIC_COUNT.finditer(text)]
    counts += [8 for m in _RATE.finditer(text) if int(m.group(1)) in _TOTALS]
    if not counts and 0 < _rate(text) <= 100 and re.search(_PLAIN_ETHERNET, text):
        counts = [1]  # a port of up to 100 Gb/s Ethernet is the host's own, not one for each GPU
    if not counts or not 1 <= counts[0] <= 32:
        return {}
    return {"nics": counts[0] // gpus * gpus if counts[0] > gpus else counts[0]}


def _link(text: str, usual: str) -> str:
    rate = _rate(text)
    if "slingshot" in text:
        return "Slingshot-10" if re.search(r"slingshot[- ]?10\b", text) else "Slingshot-11"
    if re.search(r"omni-?path", text):
        return f"Omni-Path {400 if rate == 400 else 100}"
    if re.search(r"\befa\b", text):
        return {100: "EFAv1", 200: "EFAv3", 400: "EFAv4"}.get(rate, "EFAv2")
    for word, link in _IB_NAMES.items():
        if re.search(rf"\b{word}\b", text):
            return link
    if re.search(r"infiniband|\bib\b", text):
        return _IB.get(rate, usual if usual in _IB.values() else "NDR")
    if re.search(_PLAIN_ETHERNET, text):
        return f"{rate or 400}GbE"
    return _IB.get(rate) or (f"{rate}GbE" if rate else usual)
