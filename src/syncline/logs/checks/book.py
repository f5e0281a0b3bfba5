"""What lines alone cannot say: checks that compare what several rules have seen.

A check takes the tallies by rule id and returns verdicts: what was observed, where, and the lines that show it. A rule
names its check; its text, meaning and fix stay in its data file.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import median

from syncline.logs.checks.flight import flight_mismatch, flight_missing
from syncline.logs.checks.groups import diverged, watchdog
from syncline.logs.checks.runs import HostTable, runs
from syncline.logs.checks.steps import steps_slower
from syncline.logs.checks.xid import XID_CHECKS
from syncline.logs.tally import MatchRow, Tallies, rows_of
from syncline.logs.verdict import CheckVerdict, some

_NET_PATH = re.compile(r"NET/\S+ \([^)]*/([A-Z0-9]+)\)")
SLOW = 0.75
"""A run below this share of its like is slow."""
START_S = 120.0
"""A failure this long after the first line is no longer one of the start."""


Check = Callable[[Tallies], list[CheckVerdict]]


def _by_host(rows: Iterable[MatchRow]) -> dict[str, list[MatchRow]]:
    found: dict[str, list[MatchRow]] = defaultdict(list)
    for row in rows:
        found[row.host].append(row)
    return found


def gdr_missing(tallies: Tallies) -> list[CheckVerdict]:
    """Channels over InfiniBand or RoCE that do not use GPUDirect RDMA."""
    found = []
    listed = {row.host for row in rows_of(tallies, "signal.hca-list")}
    for host, rows in _by_host(r for r in rows_of(tallies, "signal.channel") if r.get("net").startswith("IB")).items():
        bare = [row for row in rows if not row.get("gdr")]
        lost, total = sum(r.count for r in bare), sum(r.count for r in rows)
        if lost > 1 or (bare and host in listed):
            text = f"{lost} of {total} channel lines over {bare[0].get('net')} lack GDRDMA"
            found.append(CheckVerdict(text, host, tuple(r.evidence for r in bare[:3])))
    return found


def idle_nics(tallies: Tallies) -> list[CheckVerdict]:
    """Hosts whose channels use fewer NICs than NCCL listed, though they have GPUs enough to use them."""
    listed = {row.host: row for row in rows_of(tallies, "signal.hca-list")}
    ranks: dict[str, set[str]] = defaultdict(set)
    for row in (*rows_of(tallies, "signal.init"), *rows_of(tallies, "signal.address")):
        ranks[row.host].add(row.get("device"))
    found = []
    for host, rows in _by_host(r for r in rows_of(tallies, "signal.channel") if r.get("net").startswith("IB")).items():
        if host not in listed:
            continue
        names = [part for part in listed[host].get("list").split("[") if part[:1].isdigit()]
        used = {row.get("index") for row in rows}
        if 0 < len(used) < min(len(names), max(len(ranks[host]), 1)):
            idle = [name.split("]")[-1].split()[0] for name in names if name.split("]")[0] not in used]
            text = f"channels use {len(used)} of {len(names)} NICs; idle: {', '.join(idle[:8])}"
            found.append(CheckVerdict(text, host, (listed[host].evidence, rows[0].evidence)))
    return found


def mixed_network(tallies: Tallies) -> list[CheckVerdict]:
    """Ranks of one job on different networks; hosts of one name are told apart by their addresses."""
    addresses = {(row.host, row.get("pid")): row.get("address") for row in rows_of(tallies, "signal.address")}
    shared = {host for host, here in _addresses_by_host(addresses).items() if len(here) > 1}
    kinds: dict[str, list[MatchRow]] = defaultdict(list)
    for row in rows_of(tallies, "signal.network"):
        kinds["Socket" if row.get("network") == "Socket" else "RDMA"].append(row)
    if len(kinds) < 2:
        return []

    # Within one host both appear when plugins are tried in turn; two hosts that differ do not agree on a network.
    def name(row: MatchRow) -> str:
        at = addresses.get((row.host, row.get("pid")), "")
        return f"{row.host} ({at})" if row.host in shared and at else row.host

    only = {kind: {name(r) for r in rows} for kind, rows in kinds.items()}
    odd = only["Socket"] - only["RDMA"]
    if not odd or not only["RDMA"] - only["Socket"]:
        return []
    text = f"{some(odd)} on Socket, {some(only['RDMA'] - only['Socket'])} on {kinds['RDMA'][0].get('network')}"
    lines = [next(r for r in kinds[k] if name(r) in (odd if k == "Socket" else only["RDMA"])) for k in kinds]
    return [CheckVerdict(text, some(odd), tuple(r.evidence for r in lines))]


def _addresses_by_host(addresses: Mapping[tuple[str, str], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for (host, _), address in addresses.items():
        found[host].add(address)
    return found


def different_mtu(tallies: Tallies) -> list[CheckVerdict]:
    """Hosts whose RDMA devices run different MTUs."""
    hosts: dict[str, set[str]] = defaultdict(set)
    rows = rows_of(tallies, "signal.mtu")
    for row in rows:
        hosts[row.host].add(row.get("mtu"))
    counts = Counter(mtu for mtus in hosts.values() for mtu in mtus)
    if len(counts) < 2:
        return []
    odd = counts.most_common()[-1][0]
    names = {"1": "256", "2": "512", "3": "1024", "4": "2048", "5": "4096"}
    text = "path MTU differs: " + ", ".join(f"{names.get(m, m)} on {some(h for h in hosts if m in hosts[h])}"
                                            for m in sorted(counts))  # fmt: skip
    first = {row.get("mtu"): row.evidence for row in reversed(rows)}
    return [CheckVerdict(text, some(h for h in hosts if odd in hosts[h]), tuple(first[m] for m in sorted(first)))]


def far_nics(tallies: Tallies) -> list[CheckVerdict]:
    """Hosts where no GPU has a NIC nearer than the CPU."""
    found = []
    for host, rows in _by_host(rows_of(tallies, "signal.gpu-paths")).items():
        paths = [word for row in rows for word in _NET_PATH.findall(row.get("nets"))]
        near = [word for word in paths if word in ("PIX", "PXB", "PXN", "P2C", "C2C", "LOC")]
        if paths and not near:
            text = f"every path from GPU to NIC is {' or '.join(sorted(set(paths)))}"
            found.append(CheckVerdict(text, host, (rows[0].evidence,)))
    return found


def at_start(tallies: Tallies) -> list[CheckVerdict]:
    """Retries exhausted although nothing had run yet: the peers never reached each other."""
    return _retries(tallies, midrun=False)


def midrun(tallies: Tallies) -> list[CheckVerdict]:
    """Retries exhausted after the job had made progress: a flap, loss or a peer that died."""
    return _retries(tallies, midrun=True)


def _retries(tallies: Tallies, *, midrun: bool) -> list[CheckVerdict]:
    progress = {(row.evidence.order): row.evidence.line for row in rows_of(tallies, "signal.progress")}
    begin = {row.evidence.order: row.evidence.context.time_s for row in rows_of(tallies, "signal.bootstrap")}
    files: dict[int, list[MatchRow]] = defaultdict(list)
    for row in rows_of(tallies, "signal.status-12"):
        files[row.evidence.order].append(row)
    late = any(_is_late(rows[0], progress, begin) for rows in files.values())
    if not files or late != midrun:
        return []
    rows = [row for group in files.values() for row in group]
    total = sum(row.count for row in rows)
    peers = {row.get("peer").split("<")[0] for row in rows if row.get("peer")}
    text = f"{total} completion{'s' if total > 1 else ''} with status 12 towards {some(peers) or 'a peer'}"
    return [CheckVerdict(text, some({row.host for row in rows if row.host}), tuple(row.evidence for row in rows[:3]))]


def _is_late(row: MatchRow, progress: Mapping[int, int], begin: Mapping[int, float | None]) -> bool:
    order, time_s = row.evidence.order, row.evidence.context.time_s
    if any(line < row.evidence.line or order_ != order for order_, line in progress.items()):
        return True
    start = begin.get(order)
    return start is not None and time_s is not None and time_s - start > START_S


def stray_rank(tallies: Tallies) -> list[CheckVerdict]:
    """Pairs of ranks that call different collectives: the rank that stands in most of them strayed."""
    rows = rows_of(tallies, "torch.collective.mismatch")
    counts = Counter(rank for row in rows for rank in (row.get("rank"), row.get("other")) if rank)
    if not counts:  # a line without its end says that ranks differ, not which
        return [CheckVerdict("the line does not say which", "", (rows[0].evidence,), 0.85)] if rows else []
    most = max(counts.values())
    strays = [rank for rank, count in counts.items() if count == most]
    text = f"rank {some(strays)} calls another collective than {len(counts) - len(strays) or 'the'} other ranks"
    return [CheckVerdict(text, f"rank {some(strays)}", tuple(row.evidence for row in rows[:3]))]


def repeated_rank(tallies: Tallies) -> list[CheckVerdict]:
    """Processes that say they are the same rank of one job."""
    rows = [row for row in rows_of(tallies, "launch.rank.repeated") if row.count > 1]
    if not rows:
        return []
    ranks, total = some(row.get("rank") for row in rows), rows[0].get("member").split("/")[1]
    text = f"rank {ranks} of {total} started more than once"
    return [CheckVerdict(text, f"rank {ranks}", tuple(row.evidence for row in rows[:3]))]


def slow_host(tallies: Tallies) -> list[CheckVerdict]:
    """A host that is slow in every pair it takes part in."""
    pairs = [run for run in _comparable(tallies) if run.num_hosts == 2]
    hosts = {host for run in pairs for host in run.hosts}
    found = []
    for host in sorted(hosts):
        mine = [run.busbw_GBps for run in pairs if host in run.hosts]
        others = [run.busbw_GBps for run in pairs if host not in run.hosts]
        if len(mine) >= 2 and len(others) >= 1 and max(mine) < SLOW * median(others):
            text = f"{host} reaches at most {max(mine):.1f} GB/s in {len(mine)} pairs, others {median(others):.1f}"
            lines = tuple(run.evidence for run in pairs if host in run.hosts)[:4]
            found.append(CheckVerdict(text, host, lines, 0.6 + 0.1 * min(3, len(mine))))
    return found if len(found) == 1 else []


def slow_across_racks(tallies: Tallies) -> list[CheckVerdict]:
    """Runs across racks (by the hosts' names) much slower than inside one, on as many hosts."""
    by_size: dict[int, list[HostTable]] = defaultdict(list)
    for run in _comparable(tallies):
        if run.num_hosts > 1 and run.racks:
            by_size[run.num_hosts].append(run)
    for num_hosts, group in sorted(by_size.items()):
        inside = [run.busbw_GBps for run in group if len(run.racks) == 1]
        across = [run for run in group if len(run.racks) > 1]
        if inside and across and median(r.busbw_GBps for r in across) < SLOW * median(inside):
            text = (f"{num_hosts} hosts: {median(r.busbw_GBps for r in across):.1f} GB/s across racks, "
                    f"{median(inside):.1f} inside one")  # fmt: skip
            return [CheckVerdict(text, some(across[0].racks), tuple(run.evidence for run in across[:3]))]
    return []


def two_hosts_flatter(tallies: Tallies) -> list[CheckVerdict]:
    """Two hosts much faster than three or more: a tree of two sends less, so this alone is no fault."""
    runs_ = [run for run in _comparable(tallies) if run.op == "all_reduce" or not run.op]
    two = [run for run in runs_ if run.num_hosts == 2]
    more = [run for run in runs_ if run.num_hosts > 2]
    if not two or not more or max(r.busbw_GBps for r in more) > 0.85 * max(r.busbw_GBps for r in two):
        return []
    best, rest = max(two, key=lambda r: r.busbw_GBps), max(more, key=lambda r: r.busbw_GBps)
    text = f"busbw {best.busbw_GBps:.0f} GB/s on 2 hosts, {rest.busbw_GBps:.0f} on {rest.num_hosts}"
    return [CheckVerdict(text, "", (best.evidence, rest.evidence))]


def collapsed(tallies: Tallies) -> list[CheckVerdict]:
    """RoCE at a fraction of a GB/s for large messages, or with loss counters that count."""
    lossy = [row for row in rows_of(tallies, "signal.loss-counter") if int(row.get("value")) >= _lost(row)]
    roce = bool(rows_of(tallies, "signal.roce"))
    slow = [run for run in _comparable(tallies) if run.num_hosts > 1 and run.busbw_GBps < 1.0]
    if not roce or not (lossy or slow) or (slow and not lossy and len(slow[0].hosts) < 2):
        return []
    parts = [f"{row.get('counter')} {row.get('value')}" for row in lossy[:4]]
    parts += [f"busbw {slow[0].busbw_GBps:.2f} GB/s at {slow[0].size_bytes >> 20} MiB"] if slow else []
    lines = tuple(row.evidence for row in lossy[:3]) + tuple(run.evidence for run in slow[:1])
    return [CheckVerdict(", ".join(parts), some({r.host for r in lossy if r.host}), lines, 0.9 if lossy else 0.6)]


def _lost(row: MatchRow) -> int:
    """Return from where on a counter since boot is no longer the odd packet."""
    return 100 if row.get("counter") == "local_ack_timeout_err" else 1000


def _comparable(tallies: Tallies) -> list[HostTable]:
    return [run for run in runs(rows_of(tallies, "signal.bench")) if run.size_bytes >= 1 << 20]


CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (
        gdr_missing, idle_nics, mixed_network, different_mtu, far_nics, at_start, midrun, watchdog, diverged,
        stray_rank, repeated_rank, slow_host, slow_across_racks, two_hosts_flatter, collapsed, flight_missing,
        flight_mismatch, steps_slower,
    )
} | XID_CHECKS  # fmt: skip
