"""Tests under load: measurements are judged by part and siblings, tools' words are read, busy hosts are spared."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from syncline.auditing.active import ACTIVE_RULES, busy, gpu, host, tools
from syncline.auditing.audit import audit, select
from syncline.auditing.rule import CannotTell
from syncline.errors import UsageError
from syncline.finding import Severity
from syncline.host.gpu import HostGpu
from syncline.host.host import Host
from syncline.host.pci import PciDevice
from syncline.host.root import Root
from syncline.host.tree import FolderTree

H100 = PciDevice("0000:18:00.0", ("pci0000:18", "0000:18:00.0"), 0x10DE, 0x2330, "", 0x030200, 0, 32.0, 32.0, 16, 16,
                 "nvidia")  # fmt: skip
GPUS = tuple(HostGpu(i, replace(H100, address=f"0000:{18 + i}:00.0", numa=i // 4)) for i in range(8))


def load(*rows: dict[str, object]) -> gpu.GpuLoad:
    return gpu.read_load("\n".join(json.dumps(row) for row in rows))


def matrices(**odd: float) -> gpu.GpuLoad:
    return load(*({"test": "matrix", "gpu": i, "value": odd.get(f"g{i}", 6.9e14)} for i in range(8)))


def test_a_sound_host_has_nothing_and_a_slow_gpu_is_named_by_its_siblings_and_by_its_part() -> None:
    assert list(gpu.slow(matrices(), "matrix", GPUS)) == []
    (sight,) = gpu.slow(matrices(g3=6.0e14), "matrix", GPUS)
    assert sight.place.startswith("gpu3") and "600 TFLOP/s" in sight.observed and "siblings" in sight.expected
    (sight,) = gpu.slow(matrices(g5=2.0e14), "matrix", GPUS)
    assert sight.place.startswith("gpu5") and "20 % of peak" in sight.observed and "50 %" in sight.expected
    alike = load(*({"test": "memory", "gpu": i, "value": 1.0e12} for i in range(8)))
    assert len(list(gpu.slow(alike, "memory", GPUS))) == 8  # siblings are no excuse


def test_a_gpu_that_others_use_is_not_judged() -> None:
    sights = list(gpu.slow(matrices(g3=2.0e14, g5=2.0e14), "matrix", GPUS))
    judged = gpu.alone(sights, GPUS, ["00000000:21:00.0"])
    assert next(judged).place.startswith("gpu5")
    with pytest.raises(CannotTell, match="other processes use gpu3"):
        next(judged)
    assert list(gpu.alone(sights, GPUS, [])) == sights
    assert len(sights) == 2


def test_copies_are_judged_by_the_link_on_the_near_socket_and_pairs_where_they_are_direct() -> None:
    copies: list[dict[str, object]] = [
        {"test": "copy", "gpu": i, "numa": n, "to": "gpu", "value": 5.4e10 if n == i // 4 else 3.0e10}
        for i in range(8) for n in (0, 1)
    ]  # fmt: skip
    assert list(gpu.slow(load(*copies), "copy", GPUS)) == []
    copies[6] = {**copies[6], "value": 1.2e10}  # gpu3, node 0
    (sight,) = gpu.slow(load(*copies), "copy", GPUS)
    assert sight.place == f"{GPUS[3].label}, memory of NUMA node 0" and "19 % of peak" in sight.observed
    pairs: list[dict[str, object]] = [
        {"test": "pair", "gpu": a, "peer": b, "direct": True, "value": 3.9e11} for a in range(8) for b in range(8)
    ]
    pairs[11] = {**pairs[11], "value": 2.2e10, "direct": True}
    (sight,) = gpu.slow(load(*pairs), "pair", GPUS)
    assert sight.place == f"{GPUS[1].label} to gpu3"
    through_host = [{**row, "value": 2.2e10, "direct": False} for row in pairs]
    assert list(gpu.slow(load(*through_host), "pair", GPUS)) == []  # no figure says what those give


def test_what_is_no_result_is_left_out_and_a_hang_is_named() -> None:
    text = 'NCCL version 2.27\n{"gpus": 8}\n{"test": "pair", "begin": true}\n[1]\n{"test": "pair", "gpu": 0, "value": '
    assert gpu.read_load(text, timed_out=True).hung == "pair"
    assert gpu.read_load(text).hung == "" and gpu.read_load("").rows == ()
    slow_program = (
        sys.executable,
        "-c",
        'import time; print(\'{"test": "copy", "begin": true}\', flush=True); time.sleep(60)',
    )
    assert gpu._run(slow_program, limit_s=6.0).hung == "copy"
    signs = """[(print('{"test": "copy", "begin": true}', flush=True), time.sleep(1.5)) for _ in range(6)]"""
    talks = gpu._run((sys.executable, "-c", f"import time; {signs}"), limit_s=6.0)
    assert talks.hung == "" and len(talks.rows) == 6  # longer than the limit, never silent for it
    mute = gpu._run((sys.executable, "-c", "import time; time.sleep(60)"), limit_s=2.0)
    assert mute.unable == "the load program printed nothing in 2 s"
    failed = gpu._run((sys.executable, "-c", "raise SystemExit('no driver')"))
    assert failed.unable == "the load program ended with status 1: no driver"
    missing = gpu._run((sys.executable, "-c", "import sys; sys.exit(\"ModuleNotFoundError: No module named 'torch'\")"))
    assert missing.unable.startswith("torch is not installed")


def test_the_load_program_runs_each_test_on_processors_and_says_that_there_is_no_gpu() -> None:
    torch = pytest.importorskip("torch")
    from syncline.runtime import gpu_load

    cpu = [torch.device("cpu")]
    rows = [
        *gpu_load.matrix(cpu, 32, 0.01),
        *gpu_load.memory(cpu, 1 << 16, 0.01),
        *gpu_load.pairs(cpu * 2, 1 << 16, 0.0),
    ]
    rows += gpu_load.copies(cpu, gpu_load.numa_cpus(), 1 << 16, 0.0)
    assert all(isinstance(row["value"], float) and row["value"] > 0 for row in rows) and len(rows) >= 6


def test_words_of_a_failing_test_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from syncline.runtime import gpu_load

    def broken() -> object:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore")

    gpu_load.attempt("matrix", broken)  # type: ignore[arg-type]
    found = gpu.read_load(capsys.readouterr().out)
    assert found.errors == {"matrix": "RuntimeError: CUDA error: uncorrectable ECC error encountered"}


PERFTEST = """
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      4159603          0.00               363.47             0.693268
---------------------------------------------------------------------------------------
"""
"""As printed in a public report of a run with -D; nobody here wrote it."""


def test_perftest_dcgm_and_ipmi_as_they_print() -> None:
    assert tools.perftest_Bps(PERFTEST) == pytest.approx(363.47e9 / 8)
    in_MiB = " #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n 65536 9 0.00 11728.47 0.18\n"
    assert tools.perftest_Bps(in_MiB) == pytest.approx(11728.47 * 2**20)
    assert tools.perftest_Bps("Couldn't listen to port 18515\n") is None
    tests = [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]},
        None,
        {"name": "Memory", "results": [{"gpu_ids": "3", "status": "Fail", "warnings": ["row remap pending"]}, None]},
    ]
    old = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}
    new = {"tests": [{"name": "pcie", "results": [{"entity_id": 2, "status": "Warn", "warnings": [{"warning": "x8"}]},
                                                  {"status": "Skip"}]}]}  # fmt: skip
    assert tools.dcgm_problems(f"WARNING: words before\n{json.dumps(old)}\nand after") == [
        ("Memory", "GPU 3: fail row remap pending")
    ]
    assert tools.dcgm_problems(json.dumps(new)) == [("pcie", "GPU 2: warn x8")]
    with pytest.raises(CannotTell, match="ran no test: the host engine is paused"):
        tools.dcgm_problems('{"DCGM Diagnostic": {"runtime_error": "the host engine is paused"}}')
    grace = {"name": "cpu", "results": [{"entity_group": "CPU", "entity_id": 1, "status": "Fail", "warnings": []}]}
    assert tools.dcgm_problems(json.dumps({"tests": [grace]})) == [("cpu", "CPU 1: fail")]
    with pytest.raises(CannotTell, match="no JSON"):
        tools.dcgm_problems("Error: unable to connect to host engine")
    sensors = "Inlet Temp       | 04h | ok  |  7.1 | 21 degrees C\nFAN5 | 34h | ns  |  7.1 | No Reading\n"
    assert tools.bad_sensors(sensors) == []
    assert tools.bad_sensors(sensors + "FAN2             | 31h | cr  |  7.1 | 300 RPM\nbroken |\n") == [
        ("FAN2", "critical: 300 RPM")
    ]


SPARK = """{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software", "results":
[{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail", "warnings": [{"error_category": 8,
"error_id": 29, "error_severity": 5, "warning": "Persistence Mode: Persistence mode for GPU 0 is disabled."}]}],
"test_summary": {"info": ["Error getting the SRAM Threshold Count for GPU 0."], "status": "Fail"}}]}]}}"""
"""DCGM 4.2.3 on a GB10, as a public repository keeps it (shortened): the only failure is a setting."""

DGX1 = """PSU Alert        | 34h | ns  | 208.1 | Event-Only
PSU Redundancy   | E8h | ok  | 21.1 | Non-Redundant: Insufficient Resources
PSU1 Status      | E0h | ok  | 10.1 | Presence detected, Power Supply AC lost
PSU3 Status      | E2h | ok  | 10.3 | Presence detected
"""
"""A DGX-1 with supplies unplugged, as a public page shows it: ipmitool calls all of them ok."""


def test_real_prints_of_dcgm_and_ipmitool() -> None:
    assert tools.dcgm_problems(SPARK) == []
    assert tools.dcgm_problems(SPARK.replace("Persistence Mode: Persistence mode for", "Uncorrectable ECC on")) == [
        ("software", "GPU 0: fail Uncorrectable ECC on GPU 0 is disabled.")
    ]
    assert tools.bad_sensors(DGX1) == [
        ("PSU Redundancy", "Non-Redundant: Insufficient Resources"),
        ("PSU1 Status", "Presence detected, Power Supply AC lost"),
    ]


def test_mounts_that_hold_data_and_what_fstab_wants() -> None:
    text = "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\nsrv:/home /ho\\040me nfs4 rw,hard 0 0\n"
    assert [(one.path, one.kind) for one in host.mounts(text)] == [("/", "ext4"), ("/ho me", "nfs4")]
    fstab = "# comment\nUUID=1 / ext4 errors=remount-ro 0 1\nUUID=2 /iso iso9660 ro 0 0\n\n"
    assert host.written_by_fstab(fstab) == {"/"}
    bad = host.MountRow("/dev/sda1", "/", "ext4", "ro,relatime")
    assert host._mount_problem(bad, {"/"})[0] == "is mounted read-only"
    assert host._mount_problem(bad, set()) == ("", "")
    assert "error" in host._mount_problem(replace_path(bad, "/no/such/place"), set())[0]


def replace_path(one: host.MountRow, path: str) -> host.MountRow:
    return one._replace(path=path, options="rw")


def test_memory_and_disk_are_measured_and_parts_known() -> None:
    assert host.stream_Bps(0.02, 1 << 20) > 1e7
    assert host.memory_Bps("Intel(R) Xeon(R) Platinum 8480C", 2) == 614e9
    assert host.memory_Bps("AMD EPYC 9654 96-Core Processor", 1) == 461e9
    assert host.memory_Bps("AMD EPYC 7742 64-Core Processor", 2) == 410e9
    assert host.memory_Bps("something new", 1) is None


def test_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    assert host.write_Bps(tmp_path, 1 << 20) > 0 and list(tmp_path.iterdir()) == []


def process(proc: Path, pid: int, name: str, state: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {state} 1 1")
    (proc / str(pid) / "wchan").write_text("rpc_wait_bit_killable")


def test_stuck_processes_and_load(tmp_path: Path) -> None:
    process(tmp_path, 12, "python (train) x", "D")
    process(tmp_path, 13, "sleep", "S")
    (tmp_path / "14").mkdir()
    assert busy.stuck_processes(tmp_path) == [(12, "python (train) x", "rpc_wait_bit_killable")]
    nobody = Host(Root.of(FolderTree(tmp_path)))
    (tmp_path / "loadavg").write_text("999.0 1 1 1/1 1\n")
    assert busy.why_busy(nobody, tmp_path).startswith("the load of the last minute is 998.0")
    (tmp_path / "loadavg").write_text("0.00 1 1 1/1 1\n")
    assert busy.why_busy(nobody, tmp_path) == ""
    for pid in range(100, 200):
        process(tmp_path, pid, "dd", "D")
    (tmp_path / "loadavg").write_text("101.00 1 1 1/1 1\n")
    assert busy.why_busy(nobody, tmp_path) == "", "a hundred stuck processes are a fault, not work"


def test_processes_on_gpus_are_seen_and_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "4711, /opt/conda/bin/python, 00000000:1B:00.0\n4712, python, 00000000:43:00.0\n"
    root = Root.live()
    monkeypatch.setattr(root, "command", lambda *words, **more: told)
    one = Host(root, {"gpus": (GPUS, {})})
    assert busy.gpu_processes(one)[0] == (4711, "python", "00000000:1B:00.0")
    assert busy.why_busy(one) == "process 4711 (python) and 1 more is on a GPU"


def test_who_holds_amds_device_is_at_work(tmp_path: Path) -> None:
    for pid, name, device in ((21, "python", "/dev/kfd"), (22, "gpuagent", "/dev/kfd"), (23, "bash", "/dev/null")):
        process(tmp_path, pid, name, "S")
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
        (tmp_path / str(pid) / "fd").mkdir()
        (tmp_path / str(pid) / "fd" / "3").symlink_to(device)
    amd = HostGpu(0, replace(H100, vendor=0x1002, device=0x74A1))
    assert busy.gpu_processes(Host(Root.live(), {"gpus": ((amd,), {})}), tmp_path) == [(21, "python", "/dev/kfd")]


def test_a_host_at_work_is_not_loaded_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.auditing.audit.why_busy", lambda host: "process 7 (python) is on a GPU")
    report = audit(Root.live(), only=["active.*"], active=True)
    (finding,) = (one for one in report.findings if one.rule == "active.busy")
    assert finding.severity is Severity.UNKNOWN and "--anyway" in finding.fix
    assert set(report.passed) <= set(busy.HARMLESS) and report.measures.keys().isdisjoint({"memory copy"})
    told = audit(Root.live(), only=["active.process.stuck"], active=True, anyway=True)
    assert not [one for one in told.findings if one.rule == "active.busy"]


def test_a_capture_cannot_be_loaded_and_active_rules_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        audit(Root.of(FolderTree(tmp_path)), active=True)
    with pytest.raises(UsageError, match="puts load on the host"):
        select(["active.disk"])
    assert {rule.id for rule in select(["active.*"], active=True)} == set(ACTIVE_RULES)
    assert all(rule.meaning and rule.fix and rule.reference for rule in ACTIVE_RULES.values())
