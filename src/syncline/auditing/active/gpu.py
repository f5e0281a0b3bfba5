"""GPUs under load: products, memory, copies by NUMA node, pairs, a sum over all; beside part and siblings.

Shares of the catalogue's peak are lower than anybody measures on a sound part (dense products reach 65 to 85 % of peak,
copies inside memory 85 to 92 %, over PCIe 80 to 90 %, over NVLink 80 to 95 %): below them something is wrong, whatever
the software. Siblings are compared more closely: the same test, at the same moment, on the same host.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median

from syncline.auditing.active.busy import gpu_processes
from syncline.auditing.expect import Expect, gpu_part
from syncline.auditing.rule import AuditRule, CannotTell, Check, Sight
from syncline.describe import units
from syncline.describe.guide import cite
from syncline.errors import CatalogError
from syncline.fabric.catalog import load_catalog
from syncline.finding import Action, Severity
from syncline.host.gpu import HostGpu
from syncline.host.host import Host

LIMIT_S = 40.0
"""How long the load program may stay silent: a test begins, a GPU answers."""
PROGRAM = (sys.executable, "-m", "syncline.runtime.gpu_load")
OF_PEAK = {"matrix": 0.5, "memory": 0.7, "copy": 0.6, "pair": 0.6, "all-reduce": 0.5}
OF_PEAK_AMD = {**OF_PEAK, "matrix": 0.3}
OF_SIBLINGS = {"matrix": 0.92, "memory": 0.92, "copy": 0.8, "pair": 0.8}
_WHAT = {"matrix": "matrix product", "memory": "copy inside memory", "copy": "copy to and from the host",
         "pair": "copy between GPUs", "all-reduce": "sum over all GPUs"}  # fmt: skip
_REFERENCE = f"azurehpc-health-checks check_gpu_bw, check_nccl_allreduce; {cite('method/audit')}"

Row = Mapping[str, object]


@dataclass(frozen=True)
class GpuLoad:
    """What the program printed, and why there is no more."""

    rows: tuple[Row, ...] = ()
    unable: str = ""
    hung: str = ""
    """The test that was running when time was up."""
    errors: Mapping[str, str] = field(default_factory=dict)

    def of(self, test: str) -> list[Row]:
        return [row for row in self.rows if row.get("test") == test and isinstance(row.get("value"), float)]


def read_load(text: str, *, unable: str = "", timed_out: bool = False) -> GpuLoad:
    """Take the program's lines apart; what is no JSON object (a library's own words) is left out."""
    rows: list[Row] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    reason = next((str(row["unable"]) for row in rows if "unable" in row), unable)
    begun = [str(row["test"]) for row in rows if row.get("begin")]
    errors = {str(row["test"]): str(row["error"]) for row in rows if "error" in row and "test" in row}
    return GpuLoad(tuple(rows), reason, begun[-1] if timed_out and begun else "", errors)


def load_gpus(host: Host) -> GpuLoad:
    """Run the program once for all rules; raises CannotTell where it cannot say anything."""
    if "gpu_load" not in host.made:
        host.made["gpu_load"] = _run(PROGRAM), {}
    load: GpuLoad = host.made["gpu_load"][0]
    if load.unable:
        raise CannotTell(load.unable)
    return load


def _run(program: Sequence[str], limit_s: float = LIMIT_S) -> GpuLoad:
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    with tempfile.TemporaryFile() as errors:
        started = subprocess.Popen(  # noqa: S603
            program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
        text, is_silent = _listen(started, limit_s)
        errors.seek(0)
        last = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    if is_silent:
        load = read_load(text, timed_out=True)
        return load if load.hung else replace(load, unable=f"the load program printed nothing in {limit_s:.0f} s")
    missing = bool(last) and "No module named 'torch'" in last[0]
    why = "torch is not installed; GPUs are loaded through it (pip install 'syncline[torch]')" if missing else ""
    if started.returncode and not why:
        why = f"the load program ended with status {started.returncode}: {last[0][:200] if last else ''}"
    return read_load(text, unable="" if '"value"' in text else why)


def _listen(program: subprocess.Popen[bytes], limit_s: float) -> tuple[str, bool]:
    """Return what it printed, and whether it fell silent for the limit; a busy host is slow, not silent."""
    assert program.stdout is not None
    parts: list[bytes] = []
    is_silent = False
    with program.stdout as out, selectors.DefaultSelector() as wait:
        wait.register(out, selectors.EVENT_READ)
        while not (is_silent := not wait.select(limit_s)):
            part = os.read(out.fileno(), 1 << 16)
            if not part:
                break
            parts.append(part)
    if is_silent:
        program.kill()
    with suppress(subprocess.TimeoutExpired):  # what waits inside the driver does not even end when killed
        program.wait(limit_s)
    return b"".join(parts).decode("utf-8", "replace"), is_silent


def peak(gpu: HostGpu, test: str) -> float | None:
    """Return what the catalogue's part does at most in a test, in its unit; None where it is not known."""
    part = gpu_part(gpu.pci.id)
    if test == "copy":
        lane = {2.5: 0.25e9, 5.0: 0.5e9, 8.0: 0.985e9, 16.0: 1.97e9, 32.0: 3.94e9, 64.0: 7.56e9}.get(gpu.pci.speed)
        return lane * gpu.pci.width if lane and gpu.pci.width and not gpu.is_coherent else None
    if part is None:
        return None
    if test == "matrix":
        return part.flops_at("bf16")
    if test == "memory":
        return part.memory_Bps
    try:
        links = load_catalog().scale_up(part.scale_up).link_Bps if part.scale_up else 0.0
    except CatalogError:
        return None
    return links * part.num_scale_up_links or None


def slow(load: GpuLoad, test: str, gpus: Sequence[HostGpu]) -> Iterator[Sight]:
    """Return the rows of a test below the part's share, and those far below their siblings, each GPU once."""
    rows = load.of(test)
    listed: set[object] = set()
    for row in sorted(rows, key=_value):
        index, value = row.get("gpu", 0), _value(row)
        gpu = gpus[index] if isinstance(index, int) and index < len(gpus) else None
        if index in listed or gpu is None:
            continue
        most = peak(gpu, test) if test != "pair" or row.get("direct") else None
        shares = OF_PEAK_AMD if gpu.pci.vendor == 0x1002 else OF_PEAK
        others = [_value(one) for one in rows if one.get("gpu") != index and _kind(one, gpus) == _kind(row, gpus)]
        middle = median(others) if len(others) >= 2 and test in OF_SIBLINGS else None
        if most and value < shares[test] * most and _is_near(row, gpu):
            listed.add(index)
            yield Sight(_place(gpu, row), f"{_WHAT[test]}: {_show(test, value)}, {100 * value / most:.0f} % of peak",
                        f"at least {100 * shares[test]:.0f} % of {_show(test, most)}", _seen(row))  # fmt: skip
        elif middle and value < OF_SIBLINGS[test] * middle:
            listed.add(index)
            yield Sight(_place(gpu, row), f"{_WHAT[test]}: {_show(test, value)}",
                        f"about {_show(test, middle)}, as its siblings", _seen(row), confidence=0.8)  # fmt: skip


def _value(row: Row) -> float:
    value = row["value"]
    assert isinstance(value, float)
    return value


def _kind(row: Row, gpus: Sequence[HostGpu]) -> tuple[object, ...]:
    """Return what rows must share to be compared: direction of a copy, direct pairs, memory of one's own socket."""
    index = row.get("gpu", 0)
    near = _is_near(row, gpus[index]) if isinstance(index, int) and index < len(gpus) else True
    return row.get("to"), row.get("direct"), near


def _is_near(row: Row, gpu: HostGpu) -> bool:
    """Say whether a copy is between a GPU and memory of its own socket: what crosses sockets has no figure."""
    return "numa" not in row or gpu.pci.numa < 0 or row["numa"] == gpu.pci.numa


def _place(gpu: HostGpu, row: Row) -> str:
    peer = f" to gpu{row['peer']}" if "peer" in row else ""
    numa = f", memory of NUMA node {row['numa']}" if "numa" in row else ""
    return f"{gpu.label}{peer}{numa}"


def _show(test: str, value: float) -> str:
    return f"{value / 1e12:.0f} TFLOP/s" if test == "matrix" else f"{value / 1e9:.3g} GB/s"


def _seen(row: Row) -> tuple[str, ...]:
    return (f"syncline.runtime.gpu_load: {json.dumps(dict(row))}",)


def alone(sights: Iterable[Sight], gpus: Sequence[HostGpu], used: Sequence[str]) -> Iterator[Sight]:
    """Yield what was seen of GPUs that nobody else uses; what a shared GPU gives says nothing of the part."""
    taken = {gpu.label for gpu in gpus if any(address.lower().endswith(gpu.pci.address.lower()) for address in used)}
    shared = set()
    for sight in sights:
        label = next((label for label in taken if sight.place.startswith(label)), "")
        if label:
            shared.add(label.partition(" ")[0])
        else:
            yield sight
    if shared:
        raise CannotTell(f"other processes use {', '.join(sorted(shared))}, so that its rate is not that of the part")


def under_load(test: str) -> Check:
    """Return a check of what every GPU does in a test."""

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        load = load_gpus(host)
        yield from alone(slow(load, test, host.gpus), host.gpus, [address for _, _, address in gpu_processes(host)])
        if test in load.errors:
            yield Sight("", f"{_WHAT[test]} failed: {load.errors[test]}", "it runs", severity=Severity.CRITICAL)

    return check


_FIX = "Look at clocks, power and temperature (nvidia-smi -q), Xid lines and ECC counters; reset it; replace it."


def hang(host: Host, expect: Expect) -> Iterator[Sight]:
    load = load_gpus(host)
    if load.hung:
        done = sorted({str(row["gpu"]) for row in load.of(load.hung) if "gpu" in row})
        after = f"; GPUs {', '.join(done)} had answered" if done else ""
        yield Sight("", f"{_WHAT.get(load.hung, load.hung)} did not end in {LIMIT_S:.0f} s{after}", "a few seconds")
    visible = next((row["gpus"] for row in load.rows if "gpus" in row), None)
    if isinstance(visible, int) and visible < len(host.gpus):
        yield Sight("", f"torch sees {visible} of {len(host.gpus)} GPUs", f"{len(host.gpus)}")


def all_reduce(host: Host, expect: Expect) -> Iterator[Sight]:
    load = load_gpus(host)
    most = peak(host.gpus[0], "all-reduce")
    for row in load.of("all-reduce"):
        if most and _value(row) < OF_PEAK["all-reduce"] * most:
            yield Sight("", f"busbw {units.show_rate(_value(row))}", f"at least {100 * OF_PEAK['all-reduce']:.0f} % of "
                        f"{units.show_rate(most)}", _seen(row))  # fmt: skip
    if "all-reduce" in load.errors:
        yield Sight("", f"failed: {load.errors['all-reduce']}", "it runs")


RULES = (
    AuditRule("active.gpu.hang", "GPUs answer under load", hang,
        "A GPU or its driver hangs: a job on it would never finish.",
        "Look for Xid lines and processes in state D; drain the host, reset the GPUs or reboot.",
        _REFERENCE, needs="gpu", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("active.gpu.matrix", "every GPU computes as its part should", under_load("matrix"),
        "One slow GPU is a straggler: all ranks wait for it at every collective.",
        _FIX,
        _REFERENCE, needs="gpu", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.gpu.memory", "every GPU's memory is as fast as its part's", under_load("memory"),
        "Kernels that read memory (most of a step besides products) run slower on it than on the others.",
        _FIX,
        _REFERENCE, needs="gpu", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.gpu.copy", "copies between host and GPU reach what the PCIe link gives", under_load("copy"),
        "Loading data, offload and checkpoints wait; RDMA into this GPU may be as slow.",
        "Look at the link's width and speed (lspci -vv), ACS, IOMMU, NUMA of the process, and reseat the card.",
        _REFERENCE, needs="gpu", action=Action.INSPECT),
    AuditRule("active.gpu.pair", "every pair of GPUs reaches what its links give", under_load("pair"),
        "NVLink lanes are down or peers go through the host: tensor parallelism slows down many times.",
        "Look at nvidia-smi nvlink -s, the fabric manager and ACS; reset the GPUs and NVSwitches.",
        _REFERENCE, needs="gpu", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("active.gpu.all-reduce", "NCCL inside the host reaches what its links give", all_reduce,
        "Collectives inside the host are slower than the links: a wrong path, shared memory instead of NVLink.",
        "Run with NCCL_DEBUG=INFO and read the channels with `syncline diagnose`; check NVLink and fabric manager.",
        _REFERENCE, needs="gpu", severity=Severity.CRITICAL, action=Action.INSPECT),
)  # fmt: skip
