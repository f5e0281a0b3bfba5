"""Scripts that start a job on every host: Slurm's sbatch, and a JobSet for Kubernetes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import yaml

from syncline.workload.job import Job

PORT = 29500


def hosts_of(job: Job, gpus_per_host: int) -> int:
    """Return the hosts that a job takes."""
    split = job.parallel
    return -(-split.model_ranks * (split.dp or 1) // gpus_per_host)


def sbatch(
    job: Job, gpus_per_host: int, entry: str, command: list[str], environment: Mapping[str, str], *, jax: bool = False
) -> str:
    """Return a Slurm script: one torchrun a host (or one process that JAX joins), ranks in the order of the hosts."""
    hosts = hosts_of(job, gpus_per_host)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={_plain(job.name)}",
        f"#SBATCH --nodes={hosts}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={min(gpus_per_host, job.parallel.model_ranks * (job.parallel.dp or 1))}",
        "#SBATCH --exclusive",
        "set -euo pipefail",
        *(f"export {name}={value}" for name, value in environment.items()),
        # No pipe into head: under pipefail its early end would end the script too.
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "head=${hosts%%$'\\n'*}",
        *(_jax_lines(hosts) if jax else _torchrun_lines(hosts, gpus_per_host)),
        f"  {entry} {shlex.join(command)}" + ("'" if jax else ""),
    ]
    return "\n".join(lines) + "\n"


def _torchrun_lines(hosts: int, gpus_per_host: int) -> list[str]:
    return [
        f"srun torchrun --nnodes={hosts} --nproc-per-node={gpus_per_host} \\",
        f'  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:{PORT}" \\',
    ]


def _jax_lines(hosts: int) -> list[str]:
    """What MaxText's initialize_jax_for_gpu reads: the first host, and each host's own number."""
    return [
        f'export JAX_COORDINATOR_IP="$head" JAX_COORDINATOR_PORT={PORT} NNODES={hosts}',
        "srun bash -c 'NODE_RANK=$SLURM_NODEID python3 \\",
    ]


def jobset(
    job: Job, gpus_per_host: int, entry: str, command: list[str], environment: Mapping[str, str], *, jax: bool = False
) -> str:
    """Return a JobSet (jobset.x-k8s.io/v1alpha2): one pod a host, which finds the first by its stable name."""
    hosts, name = hosts_of(job, gpus_per_host), _plain(job.name)
    first = f"{name}-workers-0-0.{name}"
    if jax:
        where = f"JAX_COORDINATOR_IP={first} JAX_COORDINATOR_PORT={PORT}"
        start = f"{where} NNODES={hosts} NODE_RANK=$JOB_COMPLETION_INDEX python3"
    else:
        start = (
            f"torchrun --nnodes={hosts} --nproc-per-node={gpus_per_host} --node-rank=$JOB_COMPLETION_INDEX "
            f"--master-addr={first} --master-port={PORT}"
        )
    start += f" {entry} {shlex.join(command)}"
    container = {
        "name": "train",
        "image": "IMAGE",
        "command": ["bash", "-c", start],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": {"limits": {"nvidia.com/gpu": gpus_per_host}},
    }
    pod = {"spec": {"restartPolicy": "Never", "hostNetwork": True, "containers": [container]}}
    spec = {"parallelism": hosts, "completions": hosts, "completionMode": "Indexed", "backoffLimit": 0, "template": pod}
    workers = {"name": "workers", "replicas": 1, "template": {"spec": spec}}
    whole = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"network": {"enableDNSHostnames": True}, "replicatedJobs": [workers]},
    }
    return yaml.safe_dump(whole, sort_keys=False, width=1000)


def _plain(name: str) -> str:
    """Return a name that Slurm and Kubernetes accept."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50] or "job"
