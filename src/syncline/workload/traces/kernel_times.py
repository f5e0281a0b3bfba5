"""What ran on one device and when: kernels of a PyTorch profiler trace or of an Nsight Systems export, in columns.

    kernels = read_kernels("profile.json.gz")        # or report.sqlite, report_cuda_gpu_trace.csv
    kernels.num_steps, kernels.sums_s()["products"]

Kernels are sorted by their names into what they do; NCCL's (and RCCL's) are communication.
"""

from __future__ import annotations

import csv
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.errors import DescriptionError, FileError
from syncline.workload.traces.kineto import device_events

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int8]
KINDS = ("products", "attention", "exchange", "memory")
_SQLITE = b"SQLite format 3\x00"
#: First match wins; what matches nothing only moves memory.
_PATTERNS = (
    ("exchange", re.compile(r"nccl|rccl|deep_?ep|all_?to_?all|allreduce_kernel|userbuffers", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|\bfa[23]\b|attention|sdpa|mha_(?:fwd|bwd)", re.IGNORECASE)),
    (
        "products",
        re.compile(r"gemm|nvjet|cublas|xmma|matmul|cijk_|wgmma|_tn_|_nt_|_nn_|splitk|scaled_mm", re.IGNORECASE),
    ),
)
_QUERY = """
SELECT s.value, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName
WHERE k.deviceId = (SELECT MIN(deviceId) FROM CUPTI_ACTIVITY_KIND_KERNEL) ORDER BY k.start
"""


@dataclass(frozen=True, eq=False)
class KernelTimes:
    """Kernels of one device in order of start, times in seconds; `step_s` are the steps that the trace marks."""

    kind: Ints  # index into KINDS
    start_s: Floats
    end_s: Floats
    step_s: Floats

    @property
    def span_s(self) -> float:
        """From the first start to the last end."""
        return float(self.end_s.max() - self.start_s.min())

    def sums_s(self) -> dict[str, float]:
        """Return the time of each kind of kernel, hidden or not."""
        length = self.end_s - self.start_s
        return {name: float(length[self.kind == index].sum()) for index, name in enumerate(KINDS)}

    def exposed_s(self) -> float:
        """Return the time in which communication ran and no other kernel."""
        moves = self.kind == KINDS.index("exchange")
        everything = _covered_s(self.start_s, self.end_s)
        return everything - _covered_s(self.start_s[~moves], self.end_s[~moves])


def kind_of(name: str) -> str:
    """Return what a kernel does, by its name.

    >>> kind_of("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"), kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    ('products', 'exchange')
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), "memory")


def read_kernels(path: str | Path) -> KernelTimes:
    """Return the kernels of a trace: PyTorch profiler (JSON, gzip too), or Nsight Systems (SQLite, CSV)."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.', hint="Name a profiler trace.") from None
    if start == b"":
        raise DescriptionError("the trace is empty.", where=str(path), hint="Profile one step and export it again.")
    if start.startswith(_SQLITE):
        return _table(_from_sqlite(path), (), str(path))
    if path.suffix.lower() == ".csv":
        return _table(_from_csv(path), (), str(path))
    if start.startswith((b"\x1f\x8b", b"{", b"[")):
        events, steps = device_events(path)
        return _table(events, steps, str(path))
    raise DescriptionError(
        "not a trace that is known.", where=str(path),
        detail="Known are PyTorch's profiler (.json, .json.gz), Nsight Systems (.sqlite, .csv) and Chakra (.et).",
        hint="An .nsys-rep is exported with: nsys export --type sqlite FILE.",
    )  # fmt: skip


def _table(events: Iterable[tuple[str, float, float]], steps: Iterable[float], where: str) -> KernelTimes:
    rows = sorted(events, key=lambda row: row[1])
    if not rows:
        raise DescriptionError("the trace has no device kernels.", where=where, hint="Profile with CUDA activities on.")
    kinds = [KINDS.index(kind_of(name)) for name, _, _ in rows]
    times = np.array([row[1:] for row in rows], dtype=np.float64)
    return KernelTimes(np.array(kinds, dtype=np.int8), times[:, 0], times[:, 1], np.array(list(steps)))


def _from_sqlite(path: Path) -> list[tuple[str, float, float]]:
    """Read kernels of the first device from `nsys export --type sqlite`; the file is opened for reading only."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            return [(str(name), a * 1e-9, b * 1e-9) for name, a, b in connection.execute(_QUERY)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise DescriptionError(
            f"not an export of Nsight Systems with kernels: {error}.", where=str(path),
            hint="nsys profile -t cuda,nvtx ..., then nsys export --type sqlite FILE.",
        ) from None  # fmt: skip


def _from_csv(path: Path) -> list[tuple[str, float, float]]:
    """Read `nsys stats --report cuda_gpu_trace --format csv`: start and duration in ns, the name last."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = iter(file)
        head = next((line for line in lines if "Duration (ns)" in line and "Start (ns)" in line), "")
        if not head:
            raise DescriptionError(
                'the CSV has no columns "Start (ns)" and "Duration (ns)".', where=str(path),
                hint="nsys stats --report cuda_gpu_trace --format csv FILE.",
            )  # fmt: skip
        return list(_csv_rows(csv.DictReader([head, *lines])))


def _csv_rows(reader: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float, float]]:
    for row in reader:
        name = str(row.get("Name") or "")
        try:
            start, length = float(row["Start (ns)"]) * 1e-9, float(row["Duration (ns)"]) * 1e-9
        except (KeyError, TypeError, ValueError):
            continue
        if not name.startswith("[CUDA mem"):
            yield name, start, start + length


def _covered_s(start: Floats, end: Floats) -> float:
    """Return the time that at least one of many spans covers; they are in order of start."""
    if not len(start):
        return 0.0
    latest = np.maximum.accumulate(end)
    before = np.concatenate([[-np.inf], latest[:-1]])
    return float(np.maximum(end - np.maximum(start, before), 0.0).sum())
