"""How to start a job with these settings: Slurm, torchrun, Kubernetes (MPIJob, PyTorchJob, Kueue topology)."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from syncline.advice.cloud import CloudProfile
from syncline.advice.setting import Setting
from syncline.fabric import Fabric
from syncline.fabric.formats.topograph import TIERS, host_labels
from syncline.fabric.formats.tree import tree_of

SHM = "16Gi"


def env_file(settings: Sequence[Setting], cloud: CloudProfile | None = None) -> str:
    """Return the variables as a shell file, each under its reason; optional and open ones are commented out.

    A cloud's own profile is sourced first, so that what the vendor changes with the plugin is not overruled by copies.
    """
    lines = list(_FILL) if any(setting.open for setting in settings) else []
    lines += _profile(cloud) if cloud and cloud.profile else []
    for setting in settings:
        lines += [f"# {setting.reason}", f"# expected: {setting.changes}"]
        if setting.check:
            lines.append(f"# seen in the log as: {setting.check}")
        value = f"'{setting.value}'" if set(setting.value) & set(" =,%") else setting.value
        if setting.seen:
            lines.append(f"# read: {setting.seen}")
        lines += [
            f"{'' if setting.is_set else '# '}export {setting.name}={value}" + "  # FILL IN" * setting.open,
            "",
        ]
    return "\n".join(lines)


_FILL = (
    "# Lines marked FILL IN name devices, interfaces or files that were read on no host: they are comments.",
    "# On a host of the job: `syncline nccl CLUSTER --host here` writes them; or from a capture: --host HOST.tar.gz",
    "# (syncline audit capture HOST.tar.gz). By hand: ibdev2netdev, ip -br addr, show_gids.",
    "",
)


def _profile(cloud: CloudProfile) -> list[str]:
    given = " ".join(f"{name}={value}" for name, value in cloud.profile_variable.items())
    return [
        f"# {cloud.cloud}: the vendor's own profile ({cloud.source}; read: {cloud.read})",
        f'if [ -f "{cloud.profile}" ]; then',
        f"    export {given}" if given else "    :",
        f'    . "{cloud.profile}"',
        "else",
        f'    echo "nccl.env: {cloud.profile} is not here; is the plugin of {cloud.cloud} installed?" >&2',
        "fi",
        "",
    ]


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
# Slurm runs a copy of this script from its spool, so nccl.env is looked for where sbatch was called, or at $NCCL_ENV.
settings="${{NCCL_ENV:-${{SLURM_SUBMIT_DIR:-$PWD}}/nccl.env}}"
if [ ! -f "$settings" ]; then
    echo "job.sbatch: no $settings; call sbatch in the folder of nccl.env, or give its path as NCCL_ENV." >&2
    exit 2
fi
set +u  # a vendor's profile may use variables that are not set
source "$settings"
set -u
# Verbs lock memory; for good, set LimitMEMLOCK=infinity for slurmd.
ulimit -l unlimited || echo "job.sbatch: the limit of locked memory stays at $(ulimit -l) KiB." >&2
if [ $# -eq 0 ]; then
    echo "usage: sbatch job.sbatch train.py ARGUMENTS..." >&2
    exit 2
fi
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${{hosts%%$'\\n'*}}
srun --kill-on-bad-exit=1 torchrun --nnodes={num_hosts} --nproc-per-node={gpus} \\
  --rdzv-backend=c10d --rdzv-endpoint="$head:${{MASTER_PORT:-29500}}" --rdzv-id="$SLURM_JOB_ID" "$@"
"""


def _hosts_under_a_leaf(fabric: Fabric) -> int:
    leaves = [len(switch.hosts) for switch in tree_of(fabric) if switch.hosts]
    return max(leaves, default=0)


def _variables(settings: Sequence[Setting]) -> list[dict[str, str]]:
    return [{"name": s.name, "value": s.value} for s in settings if s.is_set]


_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-{}/tcpgpudmarxd-dev:RELEASE"
_DAEMONS = {
    "tcpxo": ("/fts/entrypoint_rxdm_container.sh", "--num_hops=2 --num_nics=8 --uid= --alsologtostderr"),
    "tcpx": ("/tcpgpudmarxd/build/app/tcpgpudmarxd", "--gpu_nic_preset a3vm --setup_param '--verbose 128 5 0'"),
}
_SHARED = (
    {"name": "nvidia", "mountPath": "/usr/local/nvidia"},
    {"name": "tcpx-run", "mountPath": "/run/tcpx"},
    {"name": "aperture-devices", "mountPath": "/dev/aperture_devices"},
)
_SHARED_VOLUMES: tuple[dict[str, object], ...] = (
    {"name": "nvidia", "hostPath": {"path": "/home/kubernetes/bin/nvidia"}},
    {"name": "tcpx-run", "emptyDir": {}},
    {"name": "aperture-devices", "hostPath": {"path": "/dev/aperture_devices"}},
)


def _daemon(sidecar: str) -> dict[str, object]:
    """Return the container that lends GPU memory to the NICs (Google's TCPX and TCPXO)."""
    command, flags = _DAEMONS[sidecar]
    return {
        "name": f"{sidecar}-daemon",
        "image": _IMAGE.format(sidecar),  # the release that belongs to the plugin's
        "restartPolicy": "Always",  # a sidecar: started before the job, ended with it
        "command": ["/bin/sh", "-c"],
        "args": [f"set -ex; chmod 755 {command}; {command} {flags}"],
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_BIND_SERVICE"]}},
        "volumeMounts": list(_SHARED),
    }


def _pod(
    settings: Sequence[Setting], gpus: int, nics: int, rdma: bool, cloud: CloudProfile | None, name: str = "train"
) -> dict[str, object]:
    devices: dict[str, object] = {"nvidia.com/gpu": gpus}
    if rdma:
        devices["rdma/rdma_shared_device_a"] = nics
    sidecar = cloud.sidecar if cloud else ""
    shm: dict[str, object] = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM}}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, *(_SHARED if sidecar else ())]  # noqa: S108
    container = {
        "name": name,
        "image": "YOUR-IMAGE",
        "env": _variables(settings),
        "resources": {"limits": devices},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": mounts,
    }
    pod: dict[str, object] = {"containers": [container], "volumes": [shm, *(_SHARED_VOLUMES if sidecar else ())]}
    if sidecar:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "initContainers": [_daemon(sidecar)]}
    return pod


def mpi_job(
    fabric: Fabric, settings: Sequence[Setting], num_hosts: int, gpus: int, *, nics: int, rdma: bool,
    cloud: CloudProfile | None = None,
) -> str:  # fmt: skip
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
                        "spec": _pod(settings, gpus, nics, rdma, cloud),
                    },
                },
            },
        },
    }
    return str(yaml.safe_dump(job, sort_keys=False))


def torch_job(
    fabric: Fabric, settings: Sequence[Setting], num_hosts: int, gpus: int, *, nics: int, rdma: bool,
    cloud: CloudProfile | None = None,
) -> str:  # fmt: skip
    """Return a PyTorchJob (kubeflow v1) whose workers torchrun starts."""
    # The operator looks for a container of this name, and refuses a job without one.
    pod = _pod(settings, gpus, nics, rdma, cloud, name="pytorch")
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
