"""Who wrote a line, and whether a rule is at home there.

A daemon, a runtime or a mount helper often ends its line in words of the operating system ("No space left on device",
"cannot open shared object file"). Whatever those words mean elsewhere, here they are a failure of its own, which only
a rule that knows it can name. Any other rule that takes such a line has met a word, not a cause.
"""

from __future__ import annotations

import re

# By who writes: how its lines look, and the rules (by the beginning of their names) that know it.
_JOBS = ("job.", "k8s.", "slurm.", "torch.process.", "log.")
_OWNERS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        re.compile(
            r"nvidia-container-(?:cli|runtime)|\blibcontainer\b|\bnvc\.c:|could not start driver service"
            r"|\bpyxis: |\bspank\S{0,10}: error|/libexec/(?:singularity|apptainer)/|\bdocker: Error response"
        ),
        (
            *_JOBS,
            "host.container",
            "host.driver",
            "gpu.mig",
            "storage.full",
            "fallback.container",
            "cuda.driver-old",
            "launch.",
        ),
    ),
    (
        re.compile(
            r"\b(?:slurmd|slurmctld|slurmstepd|slurmdbd)(?:\[\d+\])?: (?:\w+: )?(?:error|fatal): (?!\*\*\*|pyxis)"
        ),
        (*_JOBS, "kernel.oom", "host.memory", "net.name", "cxi.", "fallback.scheduler", "host.clock", "nccl.", "mpi."),
    ),
    (
        re.compile(r"\bmount\.(?:lustre|nfs|ceph|beegfs|gpfs)\b|\bLustreError: |\bLNet(?:Error)?: "),
        ("storage.", "kernel.", "fallback.", "k8s.", "log."),
    ),
    (
        re.compile(r"(?:\(raylet|\(gcs_server|\[core\] |\bcore_worker\.cc:|\bgcs_\w+\.cc:|\braylet/\w+\.cc:)"),
        ("ray.", "torch.", "host.", "net.", "storage.", "fallback.", "serve.", "cuda.", "job.", "log.", "kernel."),
    ),
)


def at_home(rule: str, line: str) -> bool:
    """Say whether a rule knows whoever wrote a line; true where nobody in particular did."""
    head = line[:300]
    return all(rule.startswith(known) or not looks.search(head) for looks, known in _OWNERS)
