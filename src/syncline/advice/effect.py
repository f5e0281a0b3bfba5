"""Whether what was set took effect, from a log: "available" is not "used".

    effects = check_effect(["nccl.log"], load("cluster.yaml"))
    [effect.text for effect in effects if effect.state == "no"]

Each effect is yes, no or unknown: a log with NCCL_DEBUG=WARN shows nothing of channels, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from syncline.advice.host_names import HostNames
from syncline.fabric import Fabric
from syncline.logs.read_rules import shipped_rules, with_rules
from syncline.logs.reading import read
from syncline.logs.rule import LogRule
from syncline.logs.source import Sources, Unread
from syncline.logs.tally import MatchRow, Tallies, rows_of
from syncline.logs.verdict import some
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.graph import search
from syncline.sim.nccl.system import NcclSystem

_MAX_LINES = 3


@dataclass(frozen=True)
class Effect:
    """One thing that should be so: what, what the log shows, and the lines."""

    what: str
    state: str
    expected: str
    seen: str
    evidence: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.what}: {self.seen}" + ("" if self.state == "yes" else f" (expected {self.expected})")


def check_effect(
    logs: Sequence[str | Path], fabric: Fabric, env: Mapping[str, str] | None = None, host: HostNames | None = None
) -> tuple[list[Effect], list[Unread]]:
    """Return what the logs show of what this cluster should give, what `env` was meant to set and what `host` has."""
    sources = Sources(logs)
    tallies = read(sources, _book()).tallies
    hosts = len({row.host for row in rows_of(tallies, "signal.init")} - {""}) or fabric.num_hosts
    system = from_fabric(fabric, num_hosts=min(hosts, fabric.num_hosts))
    found = [check(tallies, system) for check in _CHECKS]
    effects = [effect for effect in found if effect is not None]
    effects += _names(tallies, host) if host is not None else []
    return effects + _settings(tallies, env or {}), sources.unread


def _names(tallies: Tallies, host: HostNames) -> list[Effect]:
    """Return whether NCCL lists the NICs of a host, all of them and of the kind that they are."""
    rows = rows_of(tallies, "signal.hca-list")
    if not host.nics:
        return []
    listed = [[word.split(":")[0] for word in re.findall(r"\[\d+\](\S+)", row.get("list"))] for row in rows]
    bad = [row for row, names in zip(rows, listed, strict=True) if set(names) != set(host.nics)]
    seen = some({", ".join(names) for names in listed})
    found = [_effect(f"NICs of {host.source}", ", ".join(host.nics), rows, bad, seen, "no `NET/IB : Using` line")]
    kinds = {"IB" if layer == "InfiniBand" else layer for layer in host.layers}
    odd = [row for row in rows if not set(re.findall(r"/(IB|RoCE)\b", row.get("list"))) <= kinds]
    seen = some({kind for row in rows for kind in re.findall(r"/(IB|RoCE)\b", row.get("list"))})
    return [*found, _effect("link layer", " and ".join(sorted(kinds)), rows, odd, seen, "no `NET/IB : Using` line")]


@cache
def _book() -> Mapping[str, LogRule]:
    text = (files("syncline.advice") / "signals.yaml").read_text(encoding="utf-8")
    signals = {id_: rule for id_, rule in shipped_rules().items() if rule.signal}
    return with_rules(signals, text, "signals.yaml")


def _lines(rows: Sequence[MatchRow]) -> tuple[str, ...]:
    return tuple(str(row.evidence) for row in rows[:_MAX_LINES])


def _effect(
    what: str, expected: str, rows: Sequence[MatchRow], wrong: Sequence[MatchRow], seen: str, missing: str
) -> Effect:
    """Return what the lines of a log show: unknown without any (`missing`), no where some are wrong."""
    if not rows:
        return Effect(what, "unknown", expected, missing)
    return Effect(what, "no" if wrong else "yes", expected, seen, _lines(wrong or rows))


def _network(tallies: Tallies, system: NcclSystem) -> Effect | None:
    rows = rows_of(tallies, "signal.network")
    expected = {
        "infiniband": "IB", "roce": "IB", "efa": "AWS Libfabric", "tcpxo": "FasTrak", "tcpx": "GPUDirectTCPX",
    }.get(system.network.split("-")[0], "")  # fmt: skip
    if not expected or system.num_islands < 2:
        return None
    wrong = [row for row in rows if row.get("network") in ("Socket", "")]
    seen = f"{some({r.host or 'a host' for r in wrong})} on Socket" if wrong else some({r.get("network") for r in rows})
    return _effect("network in use", expected, rows, wrong, seen, "no `Using network` line (NCCL_DEBUG=INFO shows it)")


def _listed(tallies: Tallies, system: NcclSystem) -> Effect | None:
    """The NICs that NCCL found on each host: as many as the cluster has, and of its link layer."""
    if system.network not in ("infiniband", "roce") or system.num_islands < 2:
        return None
    rows, layer = rows_of(tallies, "signal.hca-list"), "IB" if system.network == "infiniband" else "RoCE"
    found = [re.findall(r"/(IB|RoCE)\b", row.get("list")) for row in rows]
    wrong = [row for row, kinds in zip(rows, found, strict=True) if kinds != [layer] * system.num_nics]
    seen = some({f"{len(kinds)} {' and '.join(sorted(set(kinds)))}" for kinds in found})
    return _effect("NICs found", f"{system.num_nics} {layer}", rows, wrong, seen, "no `NET/IB : Using` line")


def _gdr(tallies: Tallies, system: NcclSystem) -> Effect | None:
    if system.network not in ("infiniband", "roce") or system.num_islands < 2:
        return None
    rows = [r for r in rows_of(tallies, "signal.channel") if r.get("net").startswith("IB")]
    bare = [r for r in rows if not r.get("gdr")]
    lost, total = (sum(r.count for r in part) for part in (bare, rows))
    seen = f"{total - lost} of {total} channel lines with GDRDMA"
    return _effect("GPUDirect RDMA on every channel", "all", rows, bare, seen, "no channel lines over IB")


def _nics(tallies: Tallies, system: NcclSystem) -> Effect | None:
    if system.num_islands < 2 or not system.num_nics:
        return None
    rows = [r for r in rows_of(tallies, "signal.channel") if r.get("net") != "Socket"]
    by_host: dict[str, set[str]] = {}
    for row in rows:
        by_host.setdefault(row.host, set()).add(row.get("index"))
    low = min(by_host, key=lambda host: len(by_host[host]), default="")
    used = len(by_host.get(low, ()))
    few = [row for row in rows if row.host == low] if used < system.num_nics else []
    seen = f"{used} on {low or 'a host'}" if few else f"{used} on every host"
    return _effect("NICs in use", f"{system.num_nics} a host", rows, few, seen, "no channel lines over the network")


def _rails(tallies: Tallies, system: NcclSystem) -> Effect | None:
    """A ring that keeps to its rail sends to the peer of the same local rank."""
    if system.num_islands < 2 or system.num_nics < 2:
        return None
    rows = rows_of(tallies, "signal.ring")
    size = system.gpus_per_host
    crossing = [r for r in rows if int(r.get("src")) % size != int(r.get("dst")) % size]
    seen = f"{len(rows) - len(crossing)} of {len(rows)} connections stay on their rail"
    return _effect(
        "rings on their rail", "same local rank on both ends", rows, crossing, seen, "no send lines over the network"
    )


def _nvls(tallies: Tallies, system: NcclSystem) -> Effect | None:
    if not (system.facts.nvls and system.has_nvswitch):
        return None
    used, banner = rows_of(tallies, "signal.nvls"), rows_of(tallies, "signal.nvls-banner")
    if used:
        return Effect("NVLink SHARP (NVLS)", "yes", "NVLS comm lines", "NVLS comm made", _lines(used))
    if banner:
        seen = "available, but no NVLS comm was made" if banner[0].get("state") == "available" else "not available"
        return Effect("NVLink SHARP (NVLS)", "no", "NVLS comm lines", seen, _lines(banner))
    return Effect(
        "NVLink SHARP (NVLS)", "unknown", "NVLS comm lines", "no line about NVLS (NCCL_DEBUG_SUBSYS=INIT,NVLS)"
    )


def _channels(tallies: Tallies, system: NcclSystem) -> Effect | None:
    rows = [r for r in rows_of(tallies, "signal.channels") if int(r.get("coll")) > 1]
    ring = search(system).ring.num_channels
    expected = f"{ring} or more (search model of NCCL {system.nccl[0]}.{system.nccl[1]})"
    if not rows:
        return Effect("channels", "unknown", expected, "no `coll channels` line")
    least = min(rows, key=lambda r: int(r.get("coll")))
    state = "yes" if int(least.get("coll")) >= ring else "no"
    return Effect("channels", state, expected, f"{least.get('coll')} on {least.host or 'a host'}", _lines([least]))


def _provider(tallies: Tallies, system: NcclSystem) -> Effect | None:
    if not system.network.startswith("efa"):
        return None
    rows = rows_of(tallies, "signal.provider")
    wrong = [r for r in rows if r.get("provider").lower() != "efa"]
    seen = some({r.get("provider") for r in rows})
    return _effect("libfabric provider", "efa", rows, wrong, seen, "no `NET/OFI Selected Provider` line")


def _release(tallies: Tallies, system: NcclSystem) -> Effect | None:
    rows = rows_of(tallies, "signal.version")
    versions = {r.get("version") for r in rows}
    state = "yes" if len(versions) == 1 else "no"
    return Effect("one NCCL release", state, "one", some(versions), _lines(rows)) if rows else None


_CHECKS: tuple[Callable[[Tallies, NcclSystem], Effect | None], ...] = (
    _network, _provider, _listed, _gdr, _nics, _rails, _nvls, _channels, _release,
)  # fmt: skip


def _settings(tallies: Tallies, env: Mapping[str, str]) -> list[Effect]:
    """Return, for each variable that was meant to be set, whether NCCL says that it read it."""
    reported = {row.get("name"): row for row in rows_of(tallies, "signal.env")}
    tuner, topo = rows_of(tallies, "signal.tuner"), rows_of(tallies, "signal.topo-file")
    found = []
    for name, value in env.items():
        if not name.startswith("NCCL_") or name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE"):
            continue
        if name == "NCCL_TUNER_PLUGIN":
            good = [r for r in tuner if r.get("state") in ("Using", "Plugin name", "ExamplePlugin")]
            state = "yes" if good else "no" if tuner else "unknown"
            seen = "loaded" if good else "not loaded" if tuner else "no TUNER/Plugin line"
            found.append(Effect("tuner plugin", state, value, seen, _lines(good or tuner)))
        elif name == "NCCL_TOPO_FILE" and any(r.get("missing") for r in topo):
            found.append(Effect("topology file", "no", value, "could not be opened", _lines(topo)))
        elif name in reported:
            read_value = reported[name].get("value").rstrip(".")
            state = "yes" if read_value == value else "no"
            found.append(Effect(name, state, value, read_value, _lines([reported[name]])))
        else:
            found.append(Effect(name, "unknown", value, "NCCL does not say (NCCL_DEBUG_SUBSYS=INIT,ENV shows it)"))
    return found
