from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.diagnosis import diagnose, shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.diagnosis.following import next_command
from syncline.finding import Finding, Place, Severity
from syncline.logs.context import context, plain
from syncline.report.text.diagnose import diagnosis_lines

JOB = """\
[2026-05-01 10:00:00] n1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
iteration 100/ 5000 | lm loss: 2.0
[2026-05-01 13:10:02] n1:1:9 [0] net_ib.cc:1299 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44206> \
with status=12 opcode=129 len=65536 vendor err 129 (Recv)
[rank0]:[E501 13:20:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds.
[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
"""
KERNEL = """\
May  1 13:09:34 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link down
May  1 13:09:39 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link up
May  1 13:10:19 n2 kernel: mlx5_core 0000:01:00.1 eth1: Link down
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "job.log").write_text(JOB)
    (tmp_path / "kern.log").write_text(KERNEL)
    return tmp_path


def test_effects_stand_under_their_cause(logs: Path) -> None:
    (cause,) = diagnose([logs]).causes
    assert cause.rule == "kernel.link.flap"
    assert cause.place == "n2 eth1"
    (retry,) = cause.effects
    (timeout,) = retry.effects
    (abort,) = timeout.effects
    assert [retry.rule, timeout.rule, abort.rule] == [
        "rdma.retry.midrun", "torch.watchdog.timeout", "nccl.abort",
    ]  # fmt: skip


def test_a_flap_long_after_the_failure_explains_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(JOB)
    (tmp_path / "kern.log").write_text(KERNEL.replace("May  1", "May  2"))
    causes = diagnose([tmp_path]).causes
    assert sorted(cause.rule for cause in causes) == ["kernel.link.flap", "rdma.retry.midrun"]
    assert causes[0].rule == "rdma.retry.midrun"  # the earlier of two grave ones


def test_evidence_names_file_and_line(logs: Path) -> None:
    finding = next(f for f in diagnose([logs]).findings if f.rule == "rdma.retry.midrun")
    assert finding.evidence[0].startswith(f"{logs}/job.log:3: [2026-05-01 13:10:02] n1:1:9")
    assert finding.since_s is not None


def test_the_text_says_it_all(logs: Path) -> None:
    text = "\n".join(diagnosis_lines(diagnose([logs, logs / "missing"])))
    assert text.startswith("CRITICAL on n2 eth1: a network link flaps") and "2 files, 8 lines," in text
    for part in ("1 cause with 3 effects", "CRITICAL on n2 eth1: a network link flaps (kernel.link.flap,",
                 "meaning: The link",
                 "fix: Take the port", "led to:", "CRITICAL rdma.retry.midrun",
                 "not read:", "missing: No such file"):  # fmt: skip
        assert part in text


def test_nothing_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("[   12.345678] mlx5_core 0000:18:00.0: firmware version: 28.39.3004\n")
    assert diagnosis_lines(diagnose([tmp_path])) == [
        "OK: kernel, and no line at error level or in words of failure (1 file, 1 line, 68 B read)."
    ]


def test_a_warning_without_a_rule_is_no_plain_ok(tmp_path: Path) -> None:
    line = "Aug 20 13:08:43.583610 leaf-01 WARNING swss#orchagent: :- thing: Got 22 odd things on port Ethernet4\n"
    (tmp_path / "syslog").write_text(line * 2)
    (answer, *rest) = diagnosis_lines(diagnose([tmp_path / "syslog"]))
    assert answer.startswith("NO KNOWN FAULT: sonic; nothing at error level, but 2 warnings that no rule explains")
    assert any("22 odd things" in text for text in rest)


@pytest.mark.parametrize(
    "line",
    [
        "Apr 13 10:53:52 gpu-1 kubelet: E0413 10:53:52.844381    3263 thing.go:2055] the thing is gone",
        "Sep  7 07:21:54.686810 leaf-01 INFO syncd#/supervisord: syncd 07:21:54 SAI: ERROR PORT x.c:11009 : Invalid 8.",
        "Jan  3 02:46:37.84 leaf-01 INFO pmon#supervisord: xcvrd Error: the thing is gone",
    ],
)
def test_what_is_passed_on_has_its_own_severity(line: str, tmp_path: Path) -> None:
    (tmp_path / "syslog").write_text(line + "\n")
    found = diagnose([tmp_path / "syslog"])
    assert found.causes or not found.understood


def test_words_of_the_system_in_a_switch_daemons_line_are_no_jobs_failure(tmp_path: Path) -> None:
    line = "2025 Jan  3 02:46:37.841044 leaf-01 INFO pmon#supervisord: thermalctld /bin/sh: 1: ipmitool: not found"
    (tmp_path / "syslog").write_text(line + "\n")
    assert all(one.is_possible for one in diagnose([tmp_path / "syslog"]).findings)


def test_a_form_that_is_not_known_is_not_ok(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("all is well\n")
    found = diagnose([tmp_path])
    assert found.severity is Severity.UNKNOWN
    (line,) = diagnosis_lines(found)
    assert line.startswith("NOT UNDERSTOOD: the form of ")


@pytest.mark.parametrize(
    "line",
    [
        "[    7.100000] [qed_probe:506()]init pci failed",
        "Jun  2 18:43:39.938873 leaf-01 ERR teamd#teamd_PortChannel1[26]: Loop callback failed with: No buffer space",
        "[    0.710033] pci 0000:04:00.0: BAR 7: failed to assign [mem size 0x01000000 64bit pref]",
        "[21852.777689] eth1: hw csum failure",
        "Jun  2 18:43:39.938873 leaf-01 ERR syncd#syncd: :- whatever: nobody has seen this before",
        "Jun  2 18:43:39.938873 leaf-01 ERR swss#orchagent: :- storm: PFC_WD_QUEUE_STORM on Ethernet8 queue 3",
        "2023/12/14 10:17:55 BFD: [SEY1D-NT8EQ] state-change: [mhop:no peer:10.0.0.16 local:0.0.0.0] up -> down "
        "reason:neighbor-down",
        "%LINK-2-NEVER_SEEN: module 3 did something",
    ],
)
def test_no_error_is_passed_over(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(line + "\n")
    found = diagnose([tmp_path])
    assert found.causes or not found.understood
    assert not diagnosis_lines(found)[0].startswith("OK")


def test_one_link_up_a_port_at_boot_is_healthy_on_four_hosts(tmp_path: Path) -> None:
    for host in range(4):
        lines = [f"[   1{port}.500000] mlx5_core 0000:{port}8:00.0 eth{port}: Link up" for port in range(8)]
        (tmp_path / f"dmesg-{host}.txt").write_text("\n".join(lines) + "\n")
    assert diagnose([tmp_path]).causes == ()


def test_hosts_come_from_file_names(tmp_path: Path) -> None:
    line = "[ 1843.308145] NVRM: Xid (PCI:0000:44:00): 79, pid=1234, GPU has fallen off the bus.\n"
    (tmp_path / "dmesg-gpu11.txt").write_text(line)
    (finding,) = diagnose([tmp_path]).findings
    assert finding.place.startswith("gpu11 ")


def test_unexplained_lines_are_ranked_by_rarity_and_nearness_to_the_end(tmp_path: Path) -> None:
    often = [
        f"Jun  2 18:43:{i % 60:02d}.000000 leaf-01 ERR lldp#lldpd: :- poll: nobody knows this one {i}"
        for i in range(50)
    ]
    rare = "Jun  2 18:59:59.000000 leaf-01 ERR lldp#lldpd: :- last: this came once, at the end"
    (tmp_path / "a.log").write_text("\n".join([*often, rare]) + "\n")
    lines = diagnose([tmp_path]).unexplained
    assert [(line.count, line.part) for line in lines] == [(1, "lldp#lldpd"), (50, "lldp#lldpd")]


def test_a_flood_is_counted_and_only_some_lines_kept(tmp_path: Path) -> None:
    line = "h{}:1:2 [0] init.cc:795 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a\n"
    (tmp_path / "a.log").write_text("".join(line.format(i % 50) for i in range(30_000)))
    (finding,) = diagnose([tmp_path]).findings
    assert finding.observed == "two ranks share a GPU (more than 20,000 lines, 50 places)"
    assert len(finding.evidence) <= 6
    assert "and 46 more" in finding.place


def test_a_rule_for_many_hosts_is_silent_on_one(tmp_path: Path) -> None:
    one = "".join(
        f"box:{i}:{i} [{i}] NCCL INFO {text}\n"
        for i in range(2)
        for text in (
            "NET/IB : No device found.",
            "Using network Socket",
            f"comm 0x1 rank {i} nranks 2 cudaDev {i} nvmlDev {i}",
        )
    )
    assert found_in(one, shipped_rules()) == []
    assert found_in(one.replace("nranks 2", "nranks 16"), shipped_rules()) == ["net.rdma.missing"]


def test_interleaved_ranks_with_the_same_number_agree_and_others_do_not() -> None:
    line = (
        "[rank{r}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={s}, OpType={o}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds\n"
    )
    same = "".join(line.format(r=r, s=7, o="ALLREDUCE") for r in range(8))
    split = "".join(line.format(r=r, s=7 if r < 6 else 6, o="ALLREDUCE") for r in range(8))
    assert found_in(same, shipped_rules()) == ["torch.watchdog.timeout"]
    assert found_in(split, shipped_rules()) == ["torch.collective.diverged"]


def flight(rank: int, entries: list[tuple[int, str, list[list[int]], str]]) -> str:
    rows = [
        {"record_id": i, "process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": f"nccl:{op}",
         "input_sizes": sizes, "state": state}
        for i, (seq, op, sizes, state) in enumerate(entries)
    ]  # fmt: skip
    return json.dumps({"version": "2.10", "pg_config": {}, "entries": rows})


def test_a_flight_recorder_names_the_missing_rank(tmp_path: Path) -> None:
    done = [(i, "all_reduce", [[4]], "completed") for i in range(1, 42)]
    for rank in range(4):
        more = [] if rank == 2 else [(42, "all_reduce", [[4]], "started")]
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_text(flight(rank, done + more))
    (finding,) = diagnose([tmp_path]).findings
    assert finding.rule == "torch.flight.missing"
    assert "rank 2 stopped at #41 all_reduce; 3 others wait in #42 all_reduce" in finding.observed


def test_a_flight_recorder_names_the_rank_that_called_something_else(tmp_path: Path) -> None:
    for rank in range(3):
        entry = (5, "all_reduce", [[4 if rank else 8]], "started")
        (tmp_path / f"rank_{rank}.json").write_text(flight(rank, [entry]))
    (finding,) = diagnose([tmp_path]).findings
    assert finding.rule == "torch.flight.mismatch"
    assert "rank 0 called all_reduce [[8]], others all_reduce [[4]]" in finding.observed


@pytest.mark.parametrize(
    "content",
    ['{"entries": 5, "pg_config": 1}', '{"entries": [], "pg_config": ', '{"entries":[{"collective_seq_id":"x"}]}'],
)
def test_a_broken_dump_is_no_crash(tmp_path: Path, content: str) -> None:
    (tmp_path / "rank_0.json").write_text(content)
    assert diagnose([tmp_path]).findings == []


@pytest.mark.parametrize(
    ("line", "host", "rank", "timed"),
    [
        ("node5:240:240 [6] misc/socket.cc:533 NCCL WARN x", "node5", "", False),
        ("[2026-04-22 21:34:20] t4-4.x-y:2016:2235 [0] NCCL WARN x", "t4-4.x-y", "", True),
        ("[1,2]<stdout>:smc-gpu-03:29880:30398 [0] init.cc:497 NCCL WARN", "smc-gpu-03", "2", False),
        ("10.10.23.10: so-10:1307367:1307586 [0] NCCL INFO", "so-10", "", False),
        ("[rank4]:[E1016 03:31:38.928463388 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog", "", "4", True),
        ("Mar 27 15:37:34 cc1 kernel: mlx5_core", "cc1", "", True),
        ("2026-11-15T05:30:00.1+00:00 gpu7 kernel: x", "gpu7", "", True),
        ("[ 1843.308145] NVRM: Xid", "", "", False),
        ("2026-99-99 99:99:99 nonsense", "", "", False),
    ],
)
def test_who_wrote_a_line(line: str, host: str, rank: str, timed: bool) -> None:
    found = context(line)
    assert (found.host, found.rank, found.time_s is not None) == (host, rank, timed)


def test_times_of_different_programs_lie_on_one_axis() -> None:
    lines = ("[2026-10-16 03:31:38] a", "[E1016 03:31:38.9 x.cpp:1] b", "Oct 16 03:31:38 host c")
    assert len({context(line).time_s for line in lines}) == 1


def test_colours_are_taken_off() -> None:
    assert plain("\x1b[31mred\x1b[0m") == "red"


def test_severity_is_the_worst(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert diagnose([logs]).severity is Severity.CRITICAL
    empty = tmp_path_factory.mktemp("empty")
    assert diagnose([empty]).severity is Severity.UNKNOWN
    (empty / "job.log").write_text("iteration 1\n")
    assert diagnose([empty]).severity is Severity.OK


def test_the_cluster_sharpens_the_lint(tmp_path: Path) -> None:
    from syncline.fabric import load

    (tmp_path / "a.log").write_text("h:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n")
    assert diagnose([tmp_path], cluster=load("h100-64-rail")).findings[0].rule == "nccl.env.rdma-off"


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-08-06T14:10:20.9-07:00 stdout F ", "(main pid=7) "])
def test_tables_of_nccl_tests_behind_what_launchers_put_in_front(prefix: str) -> None:
    book = shipped_rules()
    example = book["bench.slow-host"].example
    assert found_in("".join(prefix + line for line in example.splitlines(keepends=True)), book) == ["bench.slow-host"]


BOND = """\
{0} mlx5_core 0000:41:00.0 eth2: Link down
{1} bond0: (slave eth2): link status down for interface, disabling it in 200 ms
{1} bond0: (slave eth2): link status definitely down, disabling slave
"""


@pytest.mark.parametrize(
    "times",
    [("[  431.479939]", "[  431.788827]"), ("Mar 27 15:37:34 n1 kernel:", "Mar 27 15:37:35 n1 kernel:")],
)
def test_a_link_that_goes_down_once_under_a_bond_does_not_flap(times: tuple[str, str]) -> None:
    assert found_in(BOND.format(*times), shipped_rules()) == ["kernel.link.down"]


def test_a_bonded_link_that_goes_down_three_times_a_day_flaps() -> None:
    hours = [f"Mar 27 {hour}:37:34 n1 kernel:" for hour in (10, 11, 12)]
    assert found_in("".join(BOND.format(hour, hour) for hour in hours), shipped_rules()) == ["kernel.link.flap"]


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("NCCL WARN NET/IB : mlx5_4:1 Got non-fatal async event: port error(10)", ["rdma.port.error"]),
        ("NCCL WARN NET/IB : mlx5_4:1 Got non-fatal async event: port active(9)", []),
        ("NCCL WARN NET/IB : mlx5_4:1 Got non-fatal async event: SM change(13)", ["rdma.fabric.changed"]),
        ("NCCL WARN NET/IB : mlx5_4:1 async fatal event: local catastrophic error", ["rdma.port.error"]),
        ("NET/IB: Got completion from peer 1.2.3.4<5> with status=IBV_WC_RNR_RETRY_EXC_ERR(13) opcode=SEND(0)",
         ["rdma.receiver-not-ready"]),
        ("NET/IB: Got completion from peer 1.2.3.4<5> with status=IBV_WC_LOC_PROT_ERR(4) opcode=SEND(0)",
         ["rdma.local-protection"]),
        ("NCCL INFO GPU Direct RDMA Disabled for GPU 7 / HCA 0 (distance 8 > 5)", []),
    ],
)  # fmt: skip
def test_what_newer_releases_of_nccl_write(line: str, rules: list[str]) -> None:
    assert found_in(f"n1:1:2 [0] transport/net_ib/common.cc:180 {line}\n", shipped_rules()) == rules


def test_a_fallback_that_is_outnumbered_names_no_cause() -> None:
    one = "cp: cannot stat '/data/index': No such file or directory\n"
    others = "worker: error: frobnicator is out of step\nworker: error: no more widgets\n"
    assert found_in(one, shipped_rules()) == ["fallback.missing"]
    assert found_in(one + others, shipped_rules()) == ["log.unexplained"]


def test_a_daemon_that_ends_in_a_word_of_the_system_is_the_daemons_failure() -> None:
    line = "[2018-05-16T22:07:25.483] fatal: frobnicate((null)): Operation not permitted\n"
    assert found_in(line, shipped_rules()) == ["fallback.scheduler"]
    full = "slurmstepd: error: write value '7' to '/sys/fs/cgroup/cpuset/slurm/job_6/cgroup.procs' failed: "
    assert found_in(full + "No space left on device\n", shipped_rules()) == ["slurm.config"]


@pytest.mark.parametrize("disk", ["sda1", "nvme0n1", "dm-3"])
def test_a_disk_without_a_host_is_no_host_to_go_to(disk: str) -> None:
    bare, there = (
        Finding("kernel.disk", Severity.CRITICAL, str(place), "errors", places=(place,))
        for place in (Place(part=disk), Place("gpu11", disk))
    )
    assert next_command(bare).startswith("ssh HOST ") and next_command(there).startswith("ssh gpu11 ")


def test_what_to_type_next_on_a_switch_is_a_command_of_switches() -> None:
    for rule in (rule for rule in shipped_rules() if rule.startswith("switch.")):
        found = next_command(
            Finding(rule, Severity.WARNING, "leaf-02 Ethernet14", "", places=(Place("leaf-02", "Ethernet14"),))
        )
        assert found.startswith('ssh leaf-02 "show ')
