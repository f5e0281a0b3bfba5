"""An order of ranks in the words of launchers: Slurm, MPI, torchrun and Kubernetes.

| file | for |
|---|---|
| `hostfile.slurm`  | `SLURM_HOSTFILE=hostfile.slurm srun --distribution=arbitrary` : a host for every task |
| `hostfile`        | `mpirun --hostfile hostfile` : hosts in order with their slots |
| `rankfile`        | `mpirun --map-by rankfile:file=rankfile` (Open MPI 5) : a host and a slot for every rank |
| `torchrun.sh`     | run on every host: finds its own node rank and GPUs, then starts torchrun |
| `jobset.yaml`     | Kubernetes: labels of the nodes, and the JobSet whose pods look their node rank up |
| `placement.json`  | all of it, for programs and for `syncline place --keep` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from syncline.describe.files import write_text
from syncline.describe.plain import JsonObject, json_text
from syncline.errors import DescriptionError

LABEL = "syncline.dev/node-rank"


@dataclass(frozen=True)
class RankSeat:
    """Where one rank runs: the host as its scheduler calls it, and the host's GPU."""

    rank: int
    host: str
    gpu: int


@dataclass(frozen=True)
class RankMap:
    """Where every rank of a job runs, in rank order."""

    job: str
    seats: tuple[RankSeat, ...]

    @property
    def hosts(self) -> dict[str, list[int]]:
        """The GPUs of every host in the order of its ranks; hosts in the order of their first rank."""
        found: dict[str, list[int]] = {}
        for seat in self.seats:
            found.setdefault(seat.host, []).append(seat.gpu)
        return found

    @property
    def blocks(self) -> bool:
        """Whether every host has consecutive ranks and all have as many, as torchrun numbers them."""
        order = [seat.host for seat in self.seats]
        runs = 1 + sum(a != b for a, b in pairwise(order))
        return runs == len(self.hosts) and len({len(gpus) for gpus in self.hosts.values()}) == 1

    def to_json(self) -> JsonObject:
        return {"job": self.job, "hosts": list(self.hosts),
                "ranks": [{"rank": s.rank, "host": s.host, "gpu": s.gpu} for s in self.seats]}  # fmt: skip


def read_rank_map(data: object, source: str) -> RankMap:
    """Return the rank map of a `placement.json`."""
    rows = data.get("ranks") if isinstance(data, Mapping) else None
    try:
        if not isinstance(rows, list) or not rows:
            raise TypeError
        seats = tuple(RankSeat(int(row["rank"]), str(row["host"]), int(row["gpu"])) for row in rows)
    except (TypeError, KeyError, ValueError):
        hint = "Give a placement.json that `syncline place` wrote."
        raise DescriptionError("this is not a placement: it has no list of ranks.", where=source, hint=hint) from None
    return RankMap(str(data.get("job", "")) if isinstance(data, Mapping) else "", seats)


def write_files(ranks: RankMap, folder: Path) -> list[Path]:
    """Write an order for every launcher and return the files; torchrun needs the same number of ranks on each host."""
    texts = {
        "hostfile.slurm": "".join(f"{seat.host}\n" for seat in ranks.seats),
        "hostfile": "".join(f"{host} slots={len(gpus)}\n" for host, gpus in ranks.hosts.items()),
        "rankfile": "".join(f"rank {seat.rank}={seat.host} slot={seat.gpu}\n" for seat in ranks.seats),
        "placement.json": json_text(ranks.to_json()) + "\n",
    }
    if ranks.blocks:
        texts |= {"torchrun.sh": torchrun(ranks), "jobset.yaml": jobset(ranks)}
    written = []
    for name, text in texts.items():
        write_text(folder / name, text)
        written.append(folder / name)
    return written


def torchrun(ranks: RankMap) -> str:
    """Return a script that every host runs: its node rank is its line, its GPUs are in the order of its ranks."""
    hosts = ranks.hosts
    first = next(iter(hosts))
    cases = "\n".join(
        f"  {host}) node_rank={number}; export CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))} ;;"
        for number, (host, gpus) in enumerate(hosts.items())
    )
    return f"""#!/bin/bash
# Ranks of {ranks.job} in the order that `syncline place` found. Run on every host: torchrun.sh train.py ARGUMENTS
# With c10d rendezvous torchrun numbers hosts as they arrive; --node-rank with a fixed master keeps this order.
set -euo pipefail
me="${{SLURMD_NODENAME:-${{NODE_NAME:-$(hostname)}}}}"
case "$me" in
{cases}
  *) echo "torchrun.sh: $me is not in this placement" >&2; exit 2 ;;
esac
exec torchrun --nnodes={len(hosts)} --nproc-per-node={len(hosts[first])} --node-rank="$node_rank" \\
  --master-addr="${{MASTER_ADDR:-{first}}}" --master-port="${{MASTER_PORT:-29500}}" "$@"
"""


def jobset(ranks: RankMap) -> str:
    """Return node labels, and a JobSet whose pods look up the rank of the node they came to.

    A pod cannot choose its rank by its node through a selector, so each gets its node's name and finds the rank in a
    ConfigMap; the label keeps the pods on these nodes and shows the order to `kubectl get nodes -L`.
    """
    hosts = ranks.hosts
    name = _object_name(ranks.job)
    labels = "\n".join(f"#   kubectl label node {host} {LABEL}={number}" for number, host in enumerate(hosts))
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-placement"},
        "data": {"torchrun.sh": torchrun(ranks)},
    }
    container = {
        "name": "train",
        "image": "YOUR-IMAGE",
        "command": ["bash", "/placement/torchrun.sh", "train.py"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {"nvidia.com/gpu": len(next(iter(hosts.values())))}},
        "volumeMounts": [{"name": "placement", "mountPath": "/placement"}],
    }
    there = [{"key": LABEL, "operator": "In", "values": [str(number) for number in range(len(hosts))]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": there}]}
    # Two pods of one node would take the same rank.
    mine = {"labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}},
            "topologyKey": "kubernetes.io/hostname"}  # fmt: skip
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]},
    }
    pod = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "affinity": affinity,
        "containers": [container],
        "volumes": [{"name": "placement", "configMap": {"name": f"{name}-placement"}}],
    }
    job = {"parallelism": len(hosts), "completions": len(hosts), "completionMode": "Indexed", "backoffLimit": 0,
           "template": {"spec": pod}}  # fmt: skip
    jobs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]},
    }
    text = str(yaml.safe_dump_all([config, jobs], sort_keys=False))
    return f"# Label the nodes first:\n{labels}\n{text}"


def _object_name(job: str) -> str:
    """Return a job's name as Kubernetes takes it for a JobSet, whose service is a DNS label: a letter first.

    >>> _object_name("70B_llama--x-")
    'train-70b-llama-x'
    """
    name = "-".join(re.findall(r"[a-z0-9]+", job.lower()))
    name = name if name[:1].isalpha() else f"train-{name}"
    return name[:40].strip("-")
