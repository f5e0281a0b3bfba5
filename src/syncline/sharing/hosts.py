"""Who gets which hosts: jobs that name theirs have them; the others get what is free, in as few racks as can be."""

from __future__ import annotations

import numpy as np

from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation, GrantedHost, allocation, from_list
from syncline.sharing.jobs_file import SharedJob
from syncline.sim.reach import fabric_reach


def assign(fabric: Fabric, jobs: tuple[SharedJob, ...]) -> tuple[Allocation, ...]:
    """Return the hosts of every job; two jobs may name the same host only where both say so themselves."""
    named = {job.name: from_list(fabric, job.hosts, job.name) for job in jobs if isinstance(job.hosts, str)}
    taken = {host for given in named.values() for host in given.hosts}
    racks = fabric_reach(fabric).outer
    rack = racks[0].of_host if racks else np.zeros(fabric.num_hosts, np.int64)
    found = dict(named)
    # The largest first: it has least choice. A rack that holds all of a job, and little else, is best.
    for job in sorted((j for j in jobs if isinstance(j.hosts, int)), key=lambda j: -int(j.hosts)):
        hosts = _free(fabric, rack, taken, int(job.hosts), job.name)
        taken |= set(hosts)
        found[job.name] = allocation(fabric, [GrantedHost(fabric.host_names[host]) for host in hosts], job.name)
    return tuple(found[job.name] for job in jobs)


def _free(fabric: Fabric, rack: np.ndarray, taken: set[int], wanted: int, name: str) -> list[int]:
    left: dict[int, list[int]] = {}
    for host in range(fabric.num_hosts):
        if host not in taken:
            left.setdefault(int(rack[host]), []).append(host)
    if sum(map(len, left.values())) < wanted:
        raise UsageError(
            f'job "{name}" wants {wanted} hosts; {sum(map(len, left.values()))} are free on {fabric.name}.',
            hint="Ask for fewer, or let a job leave before it arrives (`leaves`).",
        )
    whole = [hosts for hosts in left.values() if len(hosts) >= wanted]
    if whole:
        return min(whole, key=lambda hosts: (len(hosts), hosts[0]))[:wanted]
    chosen: list[int] = []
    for hosts in sorted(left.values(), key=lambda hosts: (-len(hosts), hosts[0])):
        chosen += hosts[: wanted - len(chosen)]
    return chosen
