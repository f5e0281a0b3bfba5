"""The environment of each rank: what torch.distributed, torchrun, Open MPI and Slurm programs expect to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncline.errors import LabError
from syncline.host.launcher import torchrun_environment
from syncline.lab.blueprint import Blueprint

MASTER_PORT = 29500
LAUNCHERS = ("torch", "mpi", "slurm")


@dataclass(frozen=True)
class Seat:
    """Where one rank runs: its host and its place there."""

    rank: int
    host: int
    local: int
    num_local: int
    num_ranks: int
    num_hosts: int


def seats(blueprint: Blueprint, ranks_per_host: int | None = None, num_ranks: int | None = None) -> tuple[Seat, ...]:
    """Place ranks on hosts in blocks: as many to a host as it has GPUs, or `ranks_per_host`; `num_ranks` in all."""
    if ranks_per_host is not None and ranks_per_host < 1:
        raise LabError(f"{ranks_per_host} ranks per host is too few.", hint="Use at least 1.")
    places: list[tuple[int, int, int]] = []
    for host in blueprint.hosts:
        count = ranks_per_host or max(1, blueprint.boxes[host].num_devices)
        places += [(host, local, count) for local in range(count)]
    if num_ranks is not None:
        if not 1 <= num_ranks <= len(places):
            raise LabError(
                f"{num_ranks} ranks do not fit: the lab has room for {len(places)}.",
                hint="Ask for fewer, or for more --ranks-per-host.",
            )
        places = places[:num_ranks]
    used = {host: sum(1 for place in places if place[0] == host) for host, _, _ in places}
    return tuple(
        Seat(rank, host, local, used[host], len(places), len(used)) for rank, (host, local, _) in enumerate(places)
    )


def rank_environment(
    blueprint: Blueprint,
    seat: Seat,
    *,
    interface: str = "eth0",
    launchers: Sequence[str] = LAUNCHERS,
    job: str = "syncline-lab",
    port: int = MASTER_PORT,
) -> dict[str, str]:
    """Return the variables of one rank, to be laid over those of whoever starts it."""
    for name in launchers:
        if name not in LAUNCHERS:
            raise LabError(f'no launcher is called "{name}".', hint=f"One of: {', '.join(LAUNCHERS)}.")
    host_name = blueprint.boxes[seat.host].name
    addresses = blueprint.addresses(seat.host)
    own = interface if interface in addresses else next(iter(addresses))
    master = next(iter(blueprint.addresses(blueprint.hosts[0]).values()))
    group = blueprint.hosts.index(seat.host)
    values: dict[str, object] = {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": own,
        "NCCL_SOCKET_IFNAME": own,
        "TP_SOCKET_IFNAME": own,
        "HOSTNAME": host_name,
        "SYNCLINE_LAB": blueprint.name,
        "SYNCLINE_LAB_HOST": host_name,
        "SYNCLINE_LAB_SCALE": repr(blueprint.scale),
        "SYNCLINE_LAB_INTERFACES": ",".join(addresses),
        "SYNCLINE_LAB_ADDRESSES": ",".join(addresses.values()),
    }
    if "torch" in launchers:
        values |= torchrun_environment(
            seat.rank, seat.num_ranks, seat.local, seat.num_local, group, seat.num_hosts, job
        )
    if "mpi" in launchers:
        values |= _mpi(seat)
    if "slurm" in launchers:
        values |= _slurm(blueprint, seat, group, host_name, master, job)
    return {name: str(value) for name, value in values.items()}


def _mpi(seat: Seat) -> Mapping[str, object]:
    return {
        "OMPI_COMM_WORLD_RANK": seat.rank,
        "OMPI_COMM_WORLD_SIZE": seat.num_ranks,
        "OMPI_COMM_WORLD_LOCAL_RANK": seat.local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": seat.num_local,
        "OMPI_COMM_WORLD_NODE_RANK": seat.local,
        "OMPI_UNIVERSE_SIZE": seat.num_ranks,
    }


def _slurm(blueprint: Blueprint, seat: Seat, group: int, host: str, master: str, job: str) -> Mapping[str, object]:
    names = ",".join(blueprint.boxes[h].name for h in blueprint.hosts[: seat.num_hosts])
    return {
        "SLURM_PROCID": seat.rank,
        "SLURM_NTASKS": seat.num_ranks,
        "SLURM_NPROCS": seat.num_ranks,
        "SLURM_LOCALID": seat.local,
        "SLURM_NODEID": group,
        "SLURM_NNODES": seat.num_hosts,
        "SLURM_JOB_NUM_NODES": seat.num_hosts,
        "SLURM_NTASKS_PER_NODE": seat.num_local,
        "SLURM_TASKS_PER_NODE": f"{seat.num_local}(x{seat.num_hosts})",
        "SLURM_JOB_ID": 1,
        "SLURM_JOBID": 1,
        "SLURM_JOB_NAME": job,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURMD_NODENAME": host,
        "SLURM_LAUNCH_NODE_IPADDR": master,
    }
