"""What the site has installed, run for seconds: perftest on each RDMA port, DCGM's quick diagnosis, IPMI's sensors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.finding import Action, Severity
from syncline.host.host import Host
from syncline.host.ports import meeting_port
from syncline.host.rdma import RdmaPort

OF_PORT = 0.85
"""One port to itself reaches 93 to 97 % of its rate; Azure's check asks for 95 % (380 of 400 Gb/s)."""
MESSAGE_BYTES = 1 << 20
TEST_S = 1
LIMIT_S = 10.0
START_S = 0.5
IB_WRITE_BW = "ib_write_bw"
DCGM = ("dcgmi", "diag", "-r", "1", "-j")
SENSORS = ("ipmitool", "sdr", "elist")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", re.MULTILINE)
_BAD_STATES = {"cr": "critical", "nr": "not recoverable", "ucr": "above critical", "lcr": "below critical",
               "unr": "above not recoverable", "lnr": "below not recoverable"}  # fmt: skip
_FAULTS = re.compile(
    r"failure detected|ac lost|input lost|predictive failure|redundancy (?:lost|degraded)|non-redundant|drive fault"
    r"|uncorrectable|config(?:uration)? error|out-of-range",
    re.IGNORECASE,
)
"""States of discrete sensors: ipmitool calls every one that can be read "ok", and puts the state into the reading."""
_SETTING = re.compile(r"persistence mode", re.IGNORECASE)
"""What DCGM fails a host for though no part of it is unfit; the audit has rules of its own for settings."""


def perftest_Bps(text: str) -> float | None:
    """Return the average of perftest's result line, in Gb/s or, as it prints unasked, in MiB/s; None without one."""
    rows = _ROW.findall(text)
    unit = 2.0**20 if re.search(r"BW average\[Mi?B/sec\]", text) else 1.25e8
    return float(rows[-1][3]) * unit if rows else None


def loopback(port: RdmaPort, gpu: int | None) -> tuple[float | None, str]:
    """Send from a port to itself, from a GPU's memory where one is named; bytes per second, or why there are none."""
    program = shutil.which(IB_WRITE_BW)
    if program is None:
        raise CannotTell(f"{IB_WRITE_BW} is not installed (perftest)")
    door = str(meeting_port())
    words = [program, "-d", port.device, "-i", str(port.port), "-s", str(MESSAGE_BYTES), "-D", str(TEST_S), "-F",
             "--report_gbits", "-p", door, *([f"--use_cuda={gpu}"] if gpu is not None else [])]  # fmt: skip
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        time.sleep(START_S)
        done = subprocess.run([*words, "127.0.0.1"], stdin=subprocess.DEVNULL, capture_output=True, check=False,  # noqa: S603
                              timeout=LIMIT_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"did not end within {LIMIT_S:.0f} s"
    finally:
        server.kill()
        server.wait()
    rate = perftest_Bps(done.stdout.decode("utf-8", "replace"))
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    return rate, "" if rate is not None else (lines[-1][:200] if lines else f"exit status {done.returncode}")


def _nearest_gpu(host: Host, port: RdmaPort) -> int | None:
    kinds = {gpu.index: host.pci.path_kind(gpu.pci.address, port.pci) for gpu in host.gpus
             if port.pci in host.pci.devices}  # fmt: skip
    near = [index for index, kind in kinds.items() if kind in ("PIX", "PXB")]
    return near[0] if near else None


def _loopbacks(host: Host, expect: Expect, *, direct: bool) -> Iterator[Sight]:
    for port in (port for port in host.fabric_ports if port.is_active and port.rate_Bps):
        gpu = _nearest_gpu(host, port) if direct else None
        if direct and gpu is None:
            continue
        rate, why = loopback(port, gpu)
        what = f"from gpu{gpu}'s memory" if direct else "from the host's memory"
        if rate is None and direct and "use_cuda" in why:
            raise CannotTell("this build of perftest has no --use_cuda")
        if rate is None:
            yield Sight(port.name, f"a write to itself {what} fails: {why}", "it runs", severity=Severity.CRITICAL)
        elif rate < OF_PORT * port.rate_Bps:
            yield Sight(port.name, f"a write to itself {what}: {rate * 8 / 1e9:.0f} Gb/s",
                        f"at least {100 * OF_PORT:.0f} % of {port.rate_text}",
                        (f"{IB_WRITE_BW} -d {port.device}",))  # fmt: skip


def dcgm_problems(text: str) -> list[tuple[str, str]]:
    """Return test and result of all that did not pass in the JSON of `dcgmi diag -j`, of old and new releases."""
    try:
        data, _ = json.JSONDecoder().raw_decode(text, text.index("{"))  # words stand before it, or after
    except (ValueError, RecursionError):
        raise CannotTell("dcgmi diag printed no JSON") from None
    found: list[tuple[str, str]] = []
    tests = list(_tests(data))
    if not tests:
        raise CannotTell(f"dcgmi diag ran no test{_why(data)}")
    for test in tests:
        for result in (row for row in test["results"] if isinstance(row, dict)):
            status = str(result.get("status", "")).lower()
            if status in ("fail", "warn", "failed", "warning"):
                where = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id")))
                detail = result.get("warnings", result.get("info", ""))
                words = [str(w.get("warning", w) if isinstance(w, dict) else w) for w in _list(detail)]
                if words and all(_SETTING.search(word) for word in words):
                    continue
                warnings = "; ".join(words)
                place = f"{result.get('entity_group', 'GPU')} {where}: " if where is not None else ""
                found.append((str(test.get("name", "")), f"{place}{status} {warnings}".strip()[:300]))
    return found


def _tests(data: object) -> Iterator[dict[str, list[object]]]:
    """Walk down to every object that has both a name and results."""
    if isinstance(data, dict):
        if "name" in data and isinstance(data.get("results"), list):
            yield data
        for value in data.values():
            yield from _tests(value)
    elif isinstance(data, list):
        for value in data:
            yield from _tests(value)


def _why(data: object) -> str:
    """Return what the document says of itself, where it holds an error instead of tests."""
    top = data if isinstance(data, dict) else {}
    for part in (top, *(value for value in top.values() if isinstance(value, dict))):
        reason = part.get("runtime_error") or part.get("error")
        if reason:
            return f": {str(reason)[:200]}"
    return ""


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value] if value else []


def _printed(host: Host, name: str, command: Sequence[str]) -> str:
    """Return what a tool prints; CannotTell where it does not answer."""
    text = host.root.command(name, command, quiet=True)
    if text is None:
        raise CannotTell(host.root.problems.get(f"`{' '.join(command)}`", f"{command[0]} does not answer"))
    return text


def dcgm(host: Host, expect: Expect) -> Iterator[Sight]:
    for test, result in dcgm_problems(_printed(host, "dcgmi-diag", DCGM)):
        yield Sight(test, result, "pass", (" ".join(DCGM),))


def bad_sensors(text: str) -> list[tuple[str, str]]:
    """Return name and reading of the sensors of `ipmitool sdr elist` that are critical or worse, or tell of a fault."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    found = []
    for row in (row for row in rows if len(row) >= 5):
        if row[2] in _BAD_STATES:
            found.append((row[0], f"{_BAD_STATES[row[2]]}: {row[4]}"))
        elif row[2] != "ns" and _FAULTS.search(row[4]):
            found.append((row[0], row[4]))
    return found


def ipmi(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, reading in bad_sensors(_printed(host, "ipmitool-sdr", SENSORS)):
        yield Sight(name, reading, "ok", (" ".join(SENSORS),))


RULES = (
    AuditRule("active.rdma.loopback", "every RDMA port reaches its rate", partial(_loopbacks, direct=False),
        "The card, its slot or its settings hold it back: all ranks wait for this rail.",
        "Look at PCIe width and speed, MaxReadReq, relaxed ordering, firmware and NUMA; reseat or replace the card.",
        "azurehpc-health-checks check_ib_bw_non_gdr",
        needs="rdma perftest", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.rdma.gpudirect", "every RDMA port reaches its rate from its GPU's memory",
        partial(_loopbacks, direct=True),
        "GPUDirect RDMA is slow or broken on this rail, though the port itself may be well.",
        "Look at nvidia_peermem or dma-buf, ACS on the switches between, and IOMMU.",
        "azurehpc-health-checks check_ib_bw_gdr",
        needs="rdma gpu perftest", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.dcgm", "DCGM's quick diagnosis passes", dcgm,
        "NVIDIA's own tests find the host unfit.",
        "Run dcgmi diag -r 3 on the drained host, and follow what it says.",
        "NVIDIA DCGM diagnostics", needs="nvidia dcgm", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.ipmi", "no sensor of the machine is critical", ipmi,
        "A supply, a fan or a temperature is out of bounds: GPUs slow down, or the host ends.",
        "Look at ipmitool sel list; replace the fan or supply, check cooling.",
        "ipmitool(1); NHC check_hw_*", needs="ipmi", severity=Severity.CRITICAL, action=Action.INSPECT),
)  # fmt: skip
