"""How to start a job with these settings: Slurm, torchrun, Kubernetes (MPIJob, PyTorchJob, Kueue topology)."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from syncline.audit.nccl.setting import Setting
from syncline.fabric import Fabric
from syncline.fabric.exchange.topograph import TIERS, host_labels
from syncline.fabric.exchange.tree import tree_of

SHM = "16Gi"


def env_file(settings: Sequence[Setting]) -> str:
    """Return the variables as a shell file, each under its reason; optional ones are commented out."""
    lines = []
    for setting in settings:
        lines += [f"# {setting.reason}", f"# expected: {setting.changes}"]
        if setting.check:
            lines.append(f"# seen in the log as: {setting.check}")
        value = f"'{setting.value}'" if set(setting.value) & set(" =,%") else setting.value
        lines += [f"{'# ' if setting.optional else ''}export {setting.name}={value}", ""]
    return "\n".join(lines)


def slurm(fabric: Fabric, num_hosts: int, gpus: int) -> str:
    """Return a batch script that starts torchrun on every host."""
    leaf = _hosts_under_a_leaf(fabric)
    switches = max(1, -(-num_hosts // leaf)) if leaf else 1
    return f"""#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes={num_hosts}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
# A leaf holds {leaf or "all"} hosts of {fabric.name}; with topology.conf in place this keeps the job on few of them.
#SBATCH --switches={switches}@10:00
set -euo pipefail
source "$(dirname "$0")/nccl.env"
ulimit -l unlimited                      # verbs lock memory; also set LimitMEMLOCK=infinity for slurmd
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 torchrun --nnodes={num_hosts} --nproc-per-node={gpus} \\
  --rdzv-backend=c10d --rdzv-endpoint="$head:29500" --rdzv-id="$SLURM_JOB_ID" "$@"
"""


def _hosts_under_a_leaf(fabric: Fabric) -> int:
    leaves = [len(switch.hosts) for switch in tree_of(fabric) if switch.hosts]
    return max(leaves, default=0)


def _variables(settings: Sequence[Setting]) -> list[dict[str, str]]:
    return [{"name": s.name, "value": s.value} for s in settings if not s.optional]


def _pod(settings: Sequence[Setting], gpus: int, nics: int, rdma: bool, name: str = "train") -> dict[str, object]:
    devices: dict[str, object] = {"nvidia.com/gpu": gpus}
    if rdma:
        devices["rdma/rdma_shared_device_a"] = nics
    container = {
        "name": name,
        "image": "YOUR-IMAGE",
        "env": _variables(settings),
        "resources": {"limits": devices},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    return {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM}}]}


def mpi_job(fabric: Fabric, settings: Sequence[Setting], num_hosts: int, gpus: int, *, nics: int, rdma: bool) -> str:
    """Return an MPIJob (kubeflow v2beta1) that runs all_reduce_perf over the job's hosts."""
    flags = [part for s in _variables(settings) for part in ("-x", s["name"])]
    command = ["mpirun", "-np", str(num_hosts * gpus), "--bind-to", "numa", *flags,
               "all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "1"]  # fmt: skip
    launcher = {"containers": [{"name": "launcher", "image": "YOUR-IMAGE", "command": command}]}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "nccl-all-reduce"},
        "spec": {
            "slotsPerWorker": gpus,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": launcher}},
                "Worker": {
                    "replicas": num_hosts,
                    "template": {
                        "metadata": {"annotations": _placement(fabric)},
                        "spec": _pod(settings, gpus, nics, rdma),
                    },
                },
            },
        },
    }
    return str(yaml.safe_dump(job, sort_keys=False))


def torch_job(fabric: Fabric, settings: Sequence[Setting], num_hosts: int, gpus: int, *, nics: int, rdma: bool) -> str:
    """Return a PyTorchJob (kubeflow v1) whose workers torchrun starts."""
    # The operator looks for a container of this name, and refuses a job without one.
    pod = _pod(settings, gpus, nics, rdma, name="pytorch")
    template = {"metadata": {"annotations": _placement(fabric)}, "spec": pod}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {
            "nprocPerNode": str(gpus),
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template},
                "Worker": {"replicas": max(0, num_hosts - 1), "restartPolicy": "OnFailure", "template": template},
            },
        },
    }

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # two replica kinds share a template; write it out twice
            return True

    return str(yaml.dump(job, Dumper=Plain, sort_keys=False))


def kueue_topology(fabric: Fabric) -> str:
    """Return Kueue's Topology whose levels are the labels that `topology-labels.yaml` sets on the hosts."""
    keys = _levels(fabric)
    levels = [{"nodeLabel": key} for key in (*reversed(keys), "kubernetes.io/hostname")]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "network"},
        "spec": {"levels": levels},
    }
    return str(yaml.safe_dump(topology, sort_keys=False))


def _levels(fabric: Fabric) -> list[str]:
    """Return the label keys in use, nearest the host first."""
    used = {key for labels in host_labels(fabric).values() for key in labels}
    return [names[0] for names in TIERS if names[0] in used]


def _placement(fabric: Fabric) -> dict[str, str]:
    levels = _levels(fabric)
    return {"kueue.x-k8s.io/podset-preferred-topology": levels[0]} if levels else {}
