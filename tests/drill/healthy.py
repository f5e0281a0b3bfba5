"""Logs of a job that is well: four hosts of eight GPUs start NCCL, train, and their kernels say little.

Ranks interleave as they do in one job's output. The same logs come out every time, so that what a planted fault changes
is all that changes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

HOSTS = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
GPUS = 8
START = datetime(2026, 11, 2, 8, 0, 0)
STEP_S = 30
STEPS = 60
JOB = "job.log"
TABLE = "all_reduce_perf.log"
"""What a benchmark between hosts leaves, beside the job's output."""
Logs = dict[str, list[str]]


def healthy_logs() -> Logs:
    """Return the lines of each file: the job's output and the kernel log of each host."""
    logs: Logs = {JOB: [*_start(), *_training()]}
    for host in HOSTS:
        logs[kernel_log(host)] = _kernel(host)
    return logs


def kernel_log(host: str) -> str:
    """Return the name of a host's kernel log."""
    return f"kern-{host}.log"


def iso(offset_s: float) -> str:
    """Return a moment of the run as NCCL and loggers write it."""
    return (START + timedelta(seconds=offset_s)).strftime("%Y-%m-%d %H:%M:%S")


def syslog(offset_s: float) -> str:
    """Return a moment of the run as syslog writes it."""
    moment = START + timedelta(seconds=offset_s)
    return f"{moment:%b} {moment.day:2d} {moment:%H:%M:%S}"


def glog(offset_s: float) -> str:
    """Return a moment of the run as PyTorch's C++ side writes it."""
    moment = START + timedelta(seconds=offset_s)
    return f"{moment.month}{moment.day:02d} {moment:%H:%M:%S}.123456789"


def _start() -> list[str]:
    lines = []
    for gpu in range(GPUS):
        for number, host in enumerate(HOSTS):
            rank, peer = number * GPUS + gpu, (number + 1) % len(HOSTS) * GPUS + gpu
            who = f"[{iso(1)}] {host}:{4000 + gpu}:{4100 + gpu} [{gpu}] NCCL INFO"
            nics = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(GPUS))
            lines += [
                f"{who} Bootstrap: Using eth0:10.0.0.{number + 1}<0>",
                f"{who} NCCL version 2.27.3+cuda12.9",
                f"{who} NET/IB : Using {nics} [RO]; OOB eth0:10.0.0.{number + 1}<0>",
                f"{who} Using network IB",
                f"{who} DMA-BUF is available on GPU device {gpu}",
                f"{who} ncclCommInitRank comm 0x55d rank {rank} nranks 32 cudaDev {gpu} nvmlDev {gpu} busId 1b000 "
                "commId 0x65e0 - Init START",
                f"{who} NVLS multicast support is available on dev {gpu} (NVLS_NCHANNELS 16)",
                f"{who} Channel 0{gpu}/0 : {rank}[{gpu}] -> {peer}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA",
                f"{who} NVLS comm 0x55d headRank {gpu} nHeads 8 buffSize 4194304 memSize 2097152",
                f"{who} 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p per peer",
                f"{who} ncclCommInitRank comm 0x55d rank {rank} nranks 32 cudaDev {gpu} nvmlDev {gpu} busId 1b000 "
                "commId 0x65e0 - Init COMPLETE",
            ]
    return lines


def _training() -> list[str]:
    return [
        f"[{iso(10 + STEP_S * step)}] iteration {step + 1:8d}/  500000 | consumed samples: {(step + 1) * 1024} | "
        f"elapsed time per iteration (ms): 29{step % 10}77.3 | lm loss: {9.0 - 0.05 * step:.6f}"
        for step in range(STEPS)
    ]


def _kernel(host: str) -> list[str]:
    lines = [f"{syslog(-600 + i)} {host} kernel: mlx5_core 0000:{0x18 + i:02x}:00.0: firmware version: 28.39.2048"
             for i in range(GPUS)]  # fmt: skip
    lines += [f"{syslog(-590 + i)} {host} kernel: mlx5_core 0000:{0x18 + i:02x}:00.0 mlx5_{i}: Port: 1 Link ACTIVE"
              for i in range(GPUS)]  # fmt: skip
    lines.append(f"{syslog(-500)} {host} kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01")
    return lines
