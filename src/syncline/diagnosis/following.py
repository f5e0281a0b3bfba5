"""The command to type next: what shows more of a cause, on the host that the log names.

Each looks and changes nothing. Where the log names no host, HOST stands for it.
"""

from __future__ import annotations

import re

from syncline.finding import Finding

_DEVICE = re.compile(r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?\b")
# By the beginning of a rule's name, the longest first: what to run, and whether on the host.
_GPU = "nvidia-smi -q -d ECC,ROW_REMAPPER,PERFORMANCE; dmesg -T | grep -iE 'xid|nvrm' | tail -20"
_NIC = "ip -br link; ibstat; dmesg -T | grep -iE 'mlx5|bnxt|link (up|down)' | tail -20"
_STACK = "for p in $(pgrep python); do py-spy dump --native --pid $p; done"
_ALL_LOGS = "syncline diagnose LOGS/  # the logs of all ranks, and `journalctl -k` of their hosts"
_COMMANDS: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("nvlink.fabric", "nvlink.imex", "nvlink.nvls", "nccl.hint.imex"),
     "systemctl status nvidia-fabricmanager nvidia-imex --no-pager; nvidia-smi -q | grep -A2 -i fabric; "
     "nvidia-imex-ctl -N", True),
    (("job.container", "host.container", "fallback.container"),
     "nvidia-smi -L; nvidia-container-cli info; journalctl -u containerd -u docker -n 50 --no-pager", True),
    (("job.unschedulable", "job.volume", "job.image"),
     "kubectl describe pod POD | tail -20  # or: scontrol show job JOB", False),
    (("job.launch",), "scontrol show job JOB; sinfo -R; scontrol ping", False),
    (("slurm.config", "slurm.spool", "slurm.prolog"),
     "slurmd -C; slurmd -G; df -h; journalctl -u slurmd -n 50 --no-pager", True),
    (("slurm.auth",), "munge -n | unmunge; timedatectl; md5sum /etc/munge/munge.key", True),
    (("slurm.controller",), "scontrol ping; systemctl status slurmctld --no-pager", False),
    (("launch.ssh", "mpi.launch", "mpi.daemon", "launch.command"),
     "hostname; which python orted prted; echo $PATH $LD_LIBRARY_PATH", True),
    (("launch.hostfile", "net.name"), "hostname -f; getent hosts NAME; cat /etc/hosts /etc/resolv.conf", True),
    (("tpu.",), "sudo lsof -w /dev/accel* /dev/vfio/*; env | grep -iE 'tpu|pjrt'", True),
    (("cuda.library", "cuda.arch", "cuda.driver-old", "python.", "build."),
     "nvidia-smi; python -m torch.utils.collect_env; env | grep -E 'LD_LIBRARY_PATH|LD_PRELOAD|CUDA'", True),
    (("host.driver",), "cat /proc/driver/nvidia/version; modinfo -F version nvidia; dkms status", True),
    (("host.shm", "nccl.shm"), "df -h /dev/shm; ls -l /dev/shm | head; fuser -v /dev/shm/*", True),
    (("host.files", "host.processes"), "ulimit -a; cat /proc/sys/fs/file-nr; ps -eLf | wc -l", True),
    (("host.permission", "fallback.permission", "fallback.missing"), "id; ls -ld PATH; mount | grep PATH", True),
    (("storage.cloud", "storage.download", "hub."), "curl -sSI URL | head -1; env | grep -iE 'proxy|AWS_|GOOGLE_|HF_'",
     True),
    (("torch.rendezvous.closed", "torch.store", "torch.process.failed", "gloo.peer", "nccl.peer", "nccl.abort",
      "ucx.peer", "ray.worker", "tf.worker", "jax.task", "job.interrupted", "slurm.task"), _ALL_LOGS, False),
    (("ray.start", "ray.connect"),
     "tail -50 /tmp/ray/session_latest/logs/{raylet,gcs_server}.err; ss -ltnp | grep 6379", True),
    (("kernel.xid", "kernel.gpu", "kernel.gsp", "kernel.sxid", "cuda.ecc", "cuda.nvlink", "nvlink.", "dcgm."),
     _GPU, True),
    (("switch.link", "switch.port", "switch.optics", "switch.module", "switch.lag", "switch.mac"),
     "show interfaces status; show interfaces counters errors; show interfaces transceiver", True),
    (("switch.bgp", "switch.bfd", "switch.adjacency", "switch.route", "switch.mlag"),
     "show ip bgp summary; show ip route summary; show lldp neighbors", True),
    (("switch.environment",), "show environment; show platform temperature", True),
    (("switch.pfc", "switch.qos"), "show pfc counters; show queue counters", True),
    (("switch.",), "show logging; show processes cpu", True),
    (("ib.",), "sminfo; ibstat; iblinkinfo | grep -i down; ibqueryerrors | head -20", True),
    (("kernel.link", "kernel.nic", "nic.", "rdma.port", "nccl.ib."), _NIC, True),
    (("kernel.pcie",), "lspci -vvv -s {device} | grep -E 'LnkSta|UESta|CESta'", True),
    (("kernel.oom", "job.memory", "host.memory", "torch.process.killed", "ray.memory", "torch.dataloader"),
     "dmesg -T | grep -iE 'out of memory|oom' | tail; free -g", True),
    (("kernel.disk", "storage."), "df -h; df -i; dmesg -T | grep -iE 'nvme|i/o error|nfs|lustre' | tail", True),
    (("kernel.",), "journalctl -k -b --no-pager | tail -100", True),
    (("rdma.memlock", "ofi.memory"), "ulimit -l; grep -i locked /proc/$(pgrep -n python)/limits", True),
    (("rdma.", "roce.", "gdr.", "nccl.hint", "nccl.verbs", "ucx.", "nvshmem.", "serve.transfer"),
     "show_gids; rdma link; ibv_devinfo | grep -E 'hca_id|state|active_mtu'", True),
    (("efa.", "ofi.", "net.efa"), "fi_info -p efa; ls /dev/infiniband; ulimit -l", True),
    (("torch.port",), "ss -ltnp", True),
    (("net.", "gloo.", "nccl.socket", "torch.rendezvous", "torch.store", "torch.ranks", "fallback.connect", "jax."),
     "ip -br addr; ss -ltnp; getent hosts $(hostname)", True),
    (("torch.flight", "torch.watchdog", "torch.collective", "nccl.ras", "serve.stuck", "horovod."), _STACK, True),
    (("torch.cuda.oom", "serve.kv", "cuda.", "nccl.gpu", "nccl.cuda", "nccl.memory"),
     "nvidia-smi; dmesg -T | grep -iE 'xid|nvrm' | tail -5; env | grep -E 'CUDA_VISIBLE|NVIDIA_VISIBLE'", True),
    (("slurm.node", "job.node"), "scontrol show node {host}; sinfo -R", False),
    (("slurm.", "job.", "fallback.scheduler"), "sacct -j JOB --format=JobID,State,ExitCode,MaxRSS,NodeList%40", False),
    (("k8s.", "fallback.kubernetes"), "kubectl describe pod POD; kubectl get events --sort-by=.lastTimestamp", False),
    (("ray.",), "ray status; ray list nodes", False),
    (("neuron.",), "neuron-ls; dmesg -T | grep -i neuron | tail", True),
    (("hccl.", "npu."), "npu-smi info; for i in 0 1 2 3 4 5 6 7; do hccn_tool -i $i -link -g; done", True),
    (("gaudi.",), "hl-smi; dmesg -T | grep -i habana | tail", True),
    (("xpu.", "ccl."), "sycl-ls; fi_info -l; dmesg -T | grep -iE 'i915|xe ' | tail", True),
    (("amdgpu.", "rccl."), "amd-smi list; dmesg -T | grep -i amdgpu | tail -20", True),
    (("bench.",), "syncline bench tournament --help", False),
    (("launch.", "torch.launch", "torch.timeout"),
     "env | grep -E 'RANK|WORLD_SIZE|MASTER_|SLURM_(PROCID|NTASKS|NNODES)'", True),
    (("torch.process.crashed",),
     "coredumpctl list | tail -5; dmesg -T | grep -iE 'segfault|xid|general protection'", True),
    (("mpi.", "cxi."),
     "ompi_info | grep -iE 'btl|pml|mtl'; fi_info -l; ucx_info -d | grep -E 'Transport|Device'", True),
    (("tcpxo.",), "kubectl logs POD -c tcpxo-daemon --tail=50", False),
    (("host.bmc",), "ipmitool sel elist | tail -20; ipmitool sdr | grep -v ok", True),
    (("host.clock",), "chronyc tracking; chronyc sources", True),
    (("host.packages",), "pip config list; python --version; uname -m; env | grep -i proxy", True),
    (("gpu.mig",), "nvidia-smi mig -lgip; fuser -v /dev/nvidia*", True),
    (("host.service",), "systemctl --failed --no-pager; journalctl -p err -b -n 50 --no-pager", True),
    (("fallback.gpu-driver",), _GPU, True),
    (("fallback.nic-driver",), _NIC, True),
    (("pci.acs", "vm."), "lspci -vvv | grep -i acsctl; nvidia-smi topo -m", True),
    (("train.",), "srun --ntasks-per-node=1 syncline audit --exit none --write audit; "
     "syncline audit matrix audit/*.json", False),
    (("nccl.", "log.unexplained"), "export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p  # run it again", False),
)  # fmt: skip


def next_command(finding: Finding) -> str:
    """Return what to type next to see more of a finding, or nothing where no command shows it."""
    found = next((row for row in _COMMANDS if finding.rule.startswith(row[0])), None)
    if found is None:
        return ""
    _, command, on_host = found
    host = finding.host or "HOST"
    device = _DEVICE.search(" ".join((finding.place, finding.observed)))
    shown = command.replace("{device}", device[0] if device else "DEVICE").replace("{host}", host)
    return f'ssh {host} "{shown}"'.replace("$", r"\$") if on_host else shown
