"""A rule that takes another component's line names no cause, and neither does a word that decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.diagnosis import diagnose
from syncline.finding import Severity
from syncline.logs.emitter import at_home, heeds
from syncline.report.text.diagnose import diagnosis_lines

HOOK = (
    "nvidia-container-cli.real: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object"
)
STEP = (
    "slurmstepd: error: write value '1' to '/sys/fs/cgroup/cpuset/slurm/cgroup.procs' failed: No space left on device"
)
MOUNT = "mount.lustre: mount 10.73.20.12@tcp0:/fs at /mnt/fs failed: No such device"
RAYLET = "[core] Failed to get the system config: IOError: 14: failed to connect to all addresses"


@pytest.mark.parametrize(
    ("rule", "line", "knows"),
    [
        ("python.import", HOOK, False),
        ("job.container.refused", HOOK, True),
        ("storage.full", STEP, False),
        ("slurm.config", STEP, True),
        ("job.volume", MOUNT, False),
        ("storage.file-system", MOUNT, True),
        ("jax.coordinator", RAYLET, False),
        ("ray.connect", RAYLET, True),
        ("python.import", "ImportError: libnvidia-ml.so.1: cannot open shared object file", True),
        (
            "storage.file-system",
            "[n1:48] pml_ucx.c:431  Error: ucp_ep_create(proc=546) failed: Input/output error",
            False,
        ),
        ("storage.full", "ib_mlx5_log.c:177 create QP failed: No space left on device", False),
        ("storage.full", "horovod: error: cannot start: No space left on device", False),
        (
            "storage.full",
            "RuntimeError: [enforce fail at inline_container.cc:664] . file write failed: No space left on device",
            True,
        ),
        ("storage.full", "cp: error writing '/scratch/a': No space left on device", True),
        ("storage.file-system", "OSError: [Errno 5] Input/output error: '/data/train.bin'", True),
        (
            "torch.internal",
            'nonce == returnedNonce INTERNAL ASSERT FAILED at "../torch/csrc/distributed/c10d/TCPStore.cpp":421',
            False,
        ),
        ("torch.internal", 'INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":733', True),
    ],
)
def test_a_rule_knows_who_wrote_a_line(rule: str, line: str, knows: bool) -> None:
    assert at_home(rule, line) is knows


def test_a_weak_match_is_said_as_something_that_may_be(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("nc: connect to frontend (172.19.0.9) port 22 (tcp) failed: Connection refused\n")
    found = diagnose([log])
    assert [(f.rule, f.severity, f.is_possible) for f in found.findings] == [
        ("fallback.connect", Severity.WARNING, True)
    ]
    assert "the cause is not known; it may be that a connection is refused" in diagnosis_lines(found)[0]
    assert "(fallback.connect, may be, 30% sure)" in diagnosis_lines(found)[0]


STATUS = "slurmd: error: slurmd initialization failed\n"
REASON = "slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory\n"
SIGNAL = "[n1:4242] *** Process received signal ***\n[n1:4242] Signal: {}\n"


@pytest.mark.parametrize(
    ("text", "rule", "possible"),
    [
        (STATUS, "slurm.config", True),
        (REASON, "slurm.config", False),
        (STATUS + REASON, "slurm.config", False),
        (SIGNAL.format("Aborted (6)"), "torch.process.crashed", True),
        (SIGNAL.format("Segmentation fault (11)"), "torch.process.crashed", False),
    ],
)
def test_what_says_that_something_failed_and_not_why_is_said_to_be_possible(
    tmp_path: Path, text: str, rule: str, possible: bool
) -> None:
    log = tmp_path / "job.log"
    log.write_text(text)
    assert [f.is_possible for f in diagnose([log]).findings if f.rule == rule] == [possible]


def test_a_guide_that_quotes_an_error_is_no_log() -> None:
    guide = "The errors belong to the network, for example, :code:`Connection reset by peer`."
    assert not heeds("fallback.connect", guide, general=True)
    assert heeds("fallback.connect", "nc: connect to n1 failed: Connection reset by peer", general=True)
    assert heeds("nccl.peer.closed", guide, general=False)
