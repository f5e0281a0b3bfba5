"""Time-outs are compared within a process group, and what no rule knows is shown, never called healthy."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from syncline.cli.shell.app import run
from syncline.diagnosis import Diagnosis, diagnose, shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.finding import Severity
from syncline.report.text.diagnose import diagnosis_lines

STAND = (
    "[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1785] [PG ID 1 PG GUID {group} Rank {inside}] Exception "
    "(either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, last "
    "completed NCCL work: {completed}.\n"
)
CAUGHT = (
    "[rank{rank}]:[E321 02:07:08.3 ProcessGroupNCCL.cpp:616] [Rank {inside}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 "
    "milliseconds\n"
)


def stand(rank: int, group: str, inside: int, seq: int, enqueued: int, completed: int) -> str:
    return STAND.format(rank=rank, group=group, inside=inside, seq=seq, enqueued=enqueued, completed=completed)


def caught(rank: int, inside: int, seq: int, op: str) -> str:
    return CAUGHT.format(rank=rank, inside=inside, seq=seq, op=op)


def told(text: str, folder: Path) -> Diagnosis:
    (folder / "job.log").write_text(text)
    return diagnose([folder / "job.log"])


def test_ranks_of_tensor_data_and_pipeline_groups_are_not_compared(tmp_path: Path) -> None:
    """Eight ranks wait in three kinds of groups, each consistent: nobody's program took two ways."""
    lines = ""
    for rank in range(8):
        lines += caught(rank, rank % 2, 1580 if rank < 4 else 12, "ALLREDUCE" if rank < 4 else "_REDUCE_SCATTER_BASE")
        group, seq = (f"{rank // 2}(tp)", 1580) if rank < 4 else (f"9{rank % 2}(dp)", 12)
        lines += stand(rank, group, rank % 2, seq, seq + 2, seq - 1)
    (finding,) = told(lines, tmp_path).findings
    assert finding.rule == "torch.watchdog.timeout"
    assert "2 ranks timed out of group 1 PG GUID 0(tp) in ALLREDUCE #1580" in finding.observed
    assert (finding.confidence or 1) <= 0.6


def test_two_ranks_in_different_collectives_of_one_group_are_the_program(tmp_path: Path) -> None:
    lines = stand(0, "5(tp)", 0, 80, 81, 79) + stand(1, "5(tp)", 1, 79, 79, 78)
    (finding,) = told(lines, tmp_path).findings
    assert finding.rule == "torch.collective.diverged"
    assert "rank 1 is behind in group 1 PG GUID 5(tp): it entered nothing after #79, while rank 0" in finding.observed
    assert finding.place == "rank 1 group 1 PG GUID 5(tp)"


def test_one_number_with_two_operations_is_named(tmp_path: Path) -> None:
    lines = "".join(
        caught(rank, rank, 42, "ALLREDUCE" if rank else "BROADCAST") + stand(rank, "0(default_pg)", rank, 42, 43, 41)
        for rank in range(4)
    )
    (finding,) = told(lines, tmp_path).findings
    assert finding.rule == "torch.collective.diverged"
    assert "#42 in group 1 PG GUID 0(default_pg) is BROADCAST on rank 0, ALLREDUCE on rank 1" in finding.observed


def test_numbers_far_apart_without_a_group_are_not_compared() -> None:
    far = caught(0, 0, 96120, "ALLREDUCE") + caught(7, 7, 64088, "ALLREDUCE")
    assert found_in(far, shipped_rules()) == ["torch.watchdog.timeout"]


@pytest.mark.parametrize(
    ("error", "rule", "observed"),
    [
        ("FrobnicateError: the flux capacitor is empty", "fallback.exception", "error of its own: FrobnicateError"),
        (
            "FrobnicateError: no socket in the flux capacitor",
            "log.unexplained",
            "FrobnicateError in 2 of 2 places, rank 3",
        ),
    ],
)
def test_a_traceback_nobody_knows_is_shown_and_not_called_healthy(
    tmp_path: Path, error: str, rule: str, observed: str
) -> None:
    text = "".join(
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "train.py", line 3, in <module>\n'
        f"[rank{rank}]: {error}\n"
        for rank in (3, 5)
    )
    diagnosis = told(text, tmp_path)
    (finding,) = diagnosis.findings
    assert finding.rule == rule
    assert observed in finding.observed
    assert "flux capacitor" in finding.evidence[0]
    assert "nothing known" not in "\n".join(diagnosis_lines(diagnosis))


def test_a_known_cause_needs_no_unknown_lines(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\nRuntimeError: CUDA error: invalid device ordinal\nBError: because of it\n"
    )
    assert [finding.rule for finding in told(text, tmp_path).findings] == ["cuda.ordinal"]


def test_a_broken_gzip_alone_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"x" * 100)[:12] + b"\xff" * 40)
    assert run(["diagnose", str(path), "--exit", "nagios"]) == 3
    assert "nothing known" not in capsys.readouterr().out
    assert diagnose([path]).severity is Severity.UNKNOWN


def test_a_small_job_on_one_host_raises_no_warning_of_rdma() -> None:
    text = "".join(
        f"box:{i}:{i} [{i}] NCCL INFO {what}\n"
        for i in range(2)
        for what in ("NET/IB : No device found.", "Using network Socket", f"comm 0x1 rank {i} nranks 4 cudaDev {i}")
    )
    assert found_in(text, shipped_rules()) == []


def test_xids_say_what_they_are_and_nonfatal_ones_are_warnings(tmp_path: Path) -> None:
    text = (
        "[1.1] NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x025001c6 0x0 0x0 0x0 0x0 0x0)\n"
        "[1.2] NVRM: Xid (PCI:0000:9b:00): 63, pid=1234, Row Remapper: New row marked for remapping\n"
    )
    found = {finding.rule: finding for finding in told(text, tmp_path).findings}
    assert "Xid 149.37 (NVLink NETIR error, fatal, link 3)" in found["kernel.xid.nvlink"].observed
    assert found["kernel.xid.remap"].severity is Severity.WARNING
    soft = (
        "[1.1] NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8 0x1 0x0 0x1 0x4)\n"
    )
    (finding,) = told(soft, tmp_path).findings
    assert (finding.rule, finding.severity) == ("kernel.xid.nvlink-soft", Severity.WARNING)
