"""NVUE files of `fabric build` before the list of commands that a Cumulus switch prints (`nv list-commands`).

NVIDIA publishes no schema of NVUE that can be downloaded, but the list is made from it: every command with its values
(`link mtu 552-9216`, `trust (l2|l3|port|both)`). Name a file with such a list in SYNCLINE_NVUE_COMMANDS: of your own
switch, or as the user guide prints it. Each `nv set` of ours must be one of its forms with a value that it allows, and
each broken command below must not be. What it does not show: that a switch applies the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections import Counter
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any

from rig.sonic_yang import FABRICS
from syncline.fabric import load
from syncline.install.installation import install


def _is(make: Any) -> Any:
    def holds(word: str) -> bool:
        try:
            make(word)
        except ValueError:
            return False
        return True

    return holds


#: What a placeholder of the list stands for, where the reference says so; others take any one word.
PLACEHOLDERS = {
    "<ipv4>": _is(ip_address), "<ip-prefix-id>": _is(ip_interface), "<static-network-id>": _is(ip_network),
    "<route-id>": _is(ip_network), "<interface-id>": re.compile(r"lo|swp\d+(s\d)?").fullmatch,
    "<neighbor-id>": re.compile(r"swp\d+(s\d)?").fullmatch, "<mode-id>": re.compile("[1248]x").fullmatch,
    "<qos-tc-id>": re.compile("[0-7]").fullmatch, "<qos-sp-id>": re.compile("[0-7]").fullmatch,
    "<qos-dscp-id>": re.compile(r"[0-9]|[1-5]\d|6[0-3]").fullmatch, "<vrf-id>": re.compile("default").fullmatch,
    "<idn-hostname>": re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,61}[A-Za-z0-9])?").fullmatch,
    "<via-id>": lambda word: word in ("blackhole", "reject") or _is(ip_address)(word),
}  # fmt: skip
#: Commands that must be refused: a word, a value, a range, a thing too many, a thing too few.
BROKEN = (
    "interface swp1 link mtu 9300", "interface swp1 link mtu 100", "interface swp1 link mtu", "interface swp1 mtu 9216",
    "interface swp1 link breakout 3x", "interface swp1 ip address 10.0.0.300/31", "interface eth9x link mtu 9216",
    "interface swp1 link fec fire", "interface swp1 description a b", "interface swp1 link mtu 9216 9216",
    "router bgp autonomous-system 0", "router bgp autonomous-system 4294967296", "router bgp router-id ten",
    "router adaptive-routing enable yes", "system forwarding hash-seed -1", "system forwarding hash-seed 4294967296",
    "system forwarding ecmp-hash qp on", "vrf default router bgp peer-group fabric timers hold 2",
    "vrf default router bgp peer-group fabric remote-as outside", "vrf default router bgp neighbor swp1 type some",
    "vrf default router bgp address-family ipv4-unicast multipaths ebgp 129",
    "vrf default router bgp address-family ipv4-unicast network 10.0.0.1/24",
    "vrf default router static 10.0.0.0/24 via nowhere", "qos mapping default-global trust dscp",
    "qos mapping default-global dscp 64 switch-priority 3", "qos mapping default-global dscp 26 switch-priority 8",
    "qos egress-scheduler default-global traffic-class 3 bw-percent 101",
    "qos egress-scheduler default-global traffic-class 3 mode wrr", "qos pfc default-global cable-length 0",
    "qos pfc default-global tx on", "qos congestion-control default-global traffic-class 3 probability 101",
    "qos congestion-control default-global traffic-class 8 ecn enable", "qos pfc-watchdog polling-interval 99",
    "qos pfc-watchdog robustness 0", "interface swp1 qos pfc-watchdog state on",
    "interface swp1 qos pfc-watchdog enable",
)  # fmt: skip


def allows(form: str, word: str) -> bool:
    """Whether a word of the list (`up`, `1-128`, `(on|off|<ipv4>)`, `<value>`) allows a word of a command."""
    if form.startswith("(") and form.endswith(")"):
        return any(allows(one, word) for one in form[1:-1].split("|"))
    if form.startswith("<"):
        known = PLACEHOLDERS.get(form)
        return bool(word) if known is None else bool(known(word))
    found = re.fullmatch(r"(-?\d+)-(-?\d+)", form)
    if found:
        return re.fullmatch(r"-?\d+", word) is not None and int(found[1]) <= int(word) <= int(found[2])
    return form == word


def form_of(words: list[str], forms: list[list[str]]) -> str | None:
    """Return the form that a command has, or None."""
    for form in forms:
        if len(form) == len(words) and all(map(allows, form, words)):
            return " ".join(form)
    return None


def run() -> dict[str, Any]:
    """Return the commands of ours that the list does not have, and that it refuses broken ones."""
    named = os.environ.get("SYNCLINE_NVUE_COMMANDS")
    if not named:
        return {"missing": ["SYNCLINE_NVUE_COMMANDS names no file with what `nv list-commands` printed"]}
    text = Path(named).read_text()
    # A command that ends in a name it makes (`neighbor <id>`) is of use alone; one that ends in a word wants a value.
    forms = [line.split()[2:] for line in text.splitlines() if line.startswith("nv set ")]
    forms = [form for form in forms if not any(other[:-1] == form for other in forms) or form[-1].startswith("<")]
    counts: Counter[str] = Counter()
    switches, strange = 0, []
    for name, cluster in FABRICS.items():
        for path, told in install(load(cluster), system="nvue").files.items():
            if not path.endswith("nvue.sh"):
                continue
            switches += 1
            for line in told.splitlines():
                if line.startswith("nv set "):
                    form = form_of(shlex.split(line)[2:], forms)
                    counts[form or "none"] += 1
                    strange += [] if form else [f"{name}, {path}: {line}"]
                elif line and not line.startswith("#") and line != "nv config apply -y":
                    strange.append(f"{name}, {path}: {line}")
    taken = [line for line in BROKEN if form_of(shlex.split(line), forms)]
    sources = Path(named).with_name("sources.json")
    return {
        "list": {"forms": len(forms), "sha256": hashlib.sha256(text.encode()).hexdigest()[:16]},
        "list_is": json.loads(sources.read_text()) if sources.exists() else "as printed",
        "fabrics": len(FABRICS), "switches": switches, "commands": counts.total(),
        "forms_used": dict(counts.most_common()), "strange": sorted(strange)[:20], "strange_count": len(strange),
        "broken": len(BROKEN), "broken_refused": len(BROKEN) - len(taken), "broken_taken": taken,
        "not_shown": "that a switch applies the file: no Cumulus Linux was run",
    }  # fmt: skip
