"""A system from free text such as "8x H100 nodes, InfiniBand NDR 8x400Gb/s": for rows that no systems file describes.

Looks for a cloud instance, a machine, a GPU, NICs with their rate and a kind of network, and takes the catalogue's
usual host for what it found. What was not in the text is assumed, and said.
"""

from __future__ import annotations

import re
from typing import Any

from syncline.errors import DescriptionError
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.describe import from_spec
from syncline.sim.nccl.system import NcclSystem

# Text of an instance or machine -> host of the catalogue and link. Longer names first.
_HOSTS: tuple[tuple[str, str, str], ...] = (
    (r"p6e-gb200|a4x|gb200", "gb200-nvl72", "NDR"),
    (r"gb300", "gb300-nvl72", "XDR"),
    (r"p6-b200|p6\.", "p6-b200", "EFAv4"),
    (r"p5en", "p5en", "EFAv3"),
    (r"\bp5e?\b", "p5", "EFAv2"),
    (r"\bp4de\b", "p4de", "EFAv1"),
    (r"\bp4d\b", "p4d", "EFAv1"),
    (r"a3[- ]?ultra", "a3-ultra", "400GbE"),
    (r"a3[- ]?mega", "a3-mega", "TCPXO-200"),
    (r"a3[- ]?high", "a3-high", "TCPX-200"),
    (r"\ba4[- ]?(high)?gpu|\ba4\b", "a4", "400GbE"),
    (r"nd[- ]?h100|ndv5|nd_?h100_?v5|nd h200", "nd-h100-v5", "NDR"),
    (r"nd[- ]?a100|ndv4|nd96asr|nd96amsr", "nd-a100-v4", "HDR"),
    (r"polaris|sirius|perlmutter", "polaris", "Slingshot-11"),
)
_GPUS = (
    ("b300", "dgx-b300"), ("b200", "dgx-b200"), ("h200", "dgx-h200"), ("h800", "hgx-h800-8"), ("h100", "hgx-h100-8"),
    ("h20", "hgx-h100-8"), ("a100", "dgx-a100"), ("a800", "dgx-a100"), ("v100", "dgx-1-v100"), ("mi300x", "mi300x-8"),
    ("mi355x", "mi355x-8"), ("mi250x", "mi250x-blade"), ("l40s", "l40s-8"),
)  # fmt: skip
_IB = {100: "EDR", 200: "HDR", 400: "NDR", 800: "XDR"}
_IB_NAMES = {"edr": "EDR", "hdr": "HDR", "ndr": "NDR", "xdr": "XDR"}
_NICS = re.compile(r"(\d+)\s*[x×]\s*(\d{2,3})\s*(?:gb|g\b|gbps|gbe)|(\d+)\s*nics?\b", re.IGNORECASE)
_RATE = re.compile(r"\b(\d{2,3})\s*(?:gb/s|gbps|gbe|gbit|g\b)", re.IGNORECASE)
_ENV = re.compile(r"\b(NCCL_[A-Z0-9_]+)=([^\s;]+)")


def guess(system: str, notes: str, num_hosts: int, gpus_per_host: int) -> NcclSystem:
    """Return the system that free text seems to describe, or raise when it names no GPU."""
    text = f"{system} {notes}".lower()
    host, link, named = _host(text)
    software: dict[str, Any] = {"env": dict(_ENV.findall(f"{system} {notes}"))}
    release = re.search(r"nccl[ _v-]*(2[._]\d+)", text)
    if release:
        software["nccl"] = release.group(1).replace("_", ".")
    if re.search(r"\bsharp\b", text) and num_hosts > 1:
        software["sharp"] = True
    description: dict[str, Any] = {"hosts": 1, "host": {"model": host, **_nic_changes(text)}}
    if num_hosts > 1:
        wire = link if named else _link(text, link)
        description["network"] = f"{'rail-optimized' if wire in _IB.values() else 'fat-tree'} {wire}"
        if re.search(r"\btcp sockets?\b|kernel tcp", text):
            software["network"] = "tcp"
    return from_spec(ClusterSpec.model_validate(description), num_hosts, gpus_per_host, software)


def _host(text: str) -> tuple[str, str, bool]:
    for pattern, host, link in _HOSTS:
        if re.search(pattern, text):
            return host, link, not re.search(r"nvl72|gb[23]00", text)
    for gpu, host in _GPUS:
        if re.search(rf"(?<![a-z]){gpu}(?!\d)", text):
            return host, {"dgx-a100": "HDR", "dgx-1-v100": "EDR"}.get(host, "NDR"), False
    raise DescriptionError(
        "the text names no GPU or machine that syncline knows.", hint="Describe it in a systems file."
    )


def _nic_changes(text: str) -> dict[str, Any]:
    match = _NICS.search(text)
    if match is None:
        return {}
    count = int(match.group(1) or match.group(3))
    return {"nics": count} if 1 <= count <= 16 and not re.search(r"efa|p[456]", text) else {}


def _link(text: str, usual: str) -> str:
    match = _NICS.search(text)
    rate = int(match.group(2)) if match and match.group(2) else 0
    if not rate and (found := _RATE.search(text)):
        rate = int(found.group(1))
    if re.search(r"\bsockets?\b|\broce\b|ethernet|gbe\b", text):
        return f"{rate if rate in (10, 25, 40, 50, 100, 200, 400, 800) else 400}GbE"
    for word, link in _IB_NAMES.items():
        if re.search(rf"\b{word}\b", text):
            return link
    return _IB.get(rate, usual)
