"""What became of every flow: a table of its own, slowdowns by size, and the distribution of completion times.

table = flow_table(outcome)
table.write("flows.csv"); table.write("flows.parquet")
table.by_size()[0].p99, table.cdf()
"""

from __future__ import annotations

import csv
import importlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.files import atomic, write_text
from syncline.errors import SimulationError
from syncline.sim.packet.chain import bus_Bps
from syncline.sim.packet.network import Floats, Longs
from syncline.sim.packet.outcome import Outcome
from syncline.sim.packet.traffic import Traffic

SIZE_STEPS = (1e3, 10e3, 100e3, 1e6, 10e6, 100e6, np.inf)
_INSIDE = "inside the host"
_QUANTILES = (0.5, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class SlowdownRow:
    """Flows of one range of sizes: how many, and how many times longer they took than alone on an empty path."""

    upto_bytes: float
    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True, eq=False)
class FlowTable:
    """Columns, a row a flow that has arrived. `alone_s` is its time on its path with nothing else there."""

    source: tuple[str, ...]
    destination: tuple[str, ...]
    size_bytes: Longs
    traffic_class: Longs
    start_s: Floats
    end_s: Floats
    alone_s: Floats
    resent_packets: Longs
    """Of the flow's connection, which is its own unless it shares one."""
    path: tuple[str, ...]
    num_missing: int

    def __len__(self) -> int:
        return len(self.size_bytes)

    @property
    def time_s(self) -> Floats:
        """From the moment a flow could start to the arrival of its last byte."""
        return self.end_s - self.start_s

    @property
    def slowdown(self) -> Floats:
        """How many times longer than alone."""
        return self.time_s / self.alone_s

    @property
    def num_inside(self) -> int:
        """How many flows stay inside a host and never meet the network."""
        return self.path.count(_INSIDE)

    def by_size(self) -> list[SlowdownRow]:
        """Return slowdowns by size, a row a range in which there are flows, and one of all at the end."""
        found = []
        place = np.searchsorted(np.asarray(SIZE_STEPS), self.size_bytes)
        for i, upto in enumerate(SIZE_STEPS):
            if (place == i).any():
                found.append(_row(float(upto), self.slowdown[place == i]))
        return [*found, _row(np.inf, self.slowdown)] if len(self) else []

    def cdf(self, points: int = 200) -> tuple[Floats, Floats]:
        """Return completion times and the share of flows that took no longer, at even shares."""
        share = np.linspace(0, 1, min(points, max(len(self), 1)) + 1)[1:]
        return np.quantile(self.time_s, share, method="inverted_cdf"), share

    def columns(self) -> dict[str, npt.NDArray[Any] | list[str]]:
        """Return the columns by name."""
        return {
            "start_s": self.start_s, "end_s": self.end_s, "source": list(self.source),
            "destination": list(self.destination), "bytes": self.size_bytes, "class": self.traffic_class,
            "time_s": self.time_s, "alone_s": self.alone_s, "slowdown": self.slowdown,
            "resent_packets": self.resent_packets, "path": list(self.path),
        }  # fmt: skip

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV, or Parquet where the name ends so (needs `syncline[parquet]`)."""
        target = Path(path)
        if target.suffix == ".parquet":
            try:
                pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
            except ImportError:
                raise SimulationError(
                    "Parquet needs pyarrow, which is not installed.", hint='pip install "syncline[parquet]", or .csv'
                ) from None
            with atomic(target) as stream:
                pq.write_table(pa.table(self.columns()), stream)
            return
        if target.suffix != ".csv":
            raise SimulationError(f'"{target.name}" is neither .csv nor .parquet.')
        out = io.StringIO()
        columns = self.columns()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(_plain(column) for column in columns.values()), strict=True))
        write_text(target, out.getvalue())


def _plain(column: Any) -> list[Any]:
    return [f"{x:.12g}" if isinstance(x, float) else x for x in np.asarray(column, object).tolist()]


def _row(upto: float, slowdown: Floats) -> SlowdownRow:
    p50, p95, p99, p999 = (float(x) for x in np.quantile(slowdown, _QUANTILES, method="inverted_cdf"))
    return SlowdownRow(upto, len(slowdown), float(slowdown.mean()), p50, p95, p99, p999)


def flow_table(outcome: Outcome, *numbers: int) -> FlowTable:
    """Return the flows of some loads of raw traffic (all of them when none is named)."""
    chosen = numbers or tuple(i for i, load in enumerate(outcome.jobs) if isinstance(load, Traffic))
    blocks = [block for block in outcome.blocks if block.job in chosen]
    if not blocks:
        raise SimulationError("a table of flows is about traffic, and there is none.")
    task = np.concatenate([block.first + np.arange(len(block.src)) for block in blocks])
    if any(block.parts > 1 for block in blocks):
        raise SimulationError("a table of flows needs one queue pair a flow.", hint="Use queue_pairs=1.")
    arrived = outcome.end_s[task] >= 0
    src, dst, size = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("src", "dst", "size_bytes")
    )
    kind = np.concatenate([_class_of(outcome, block.job) for block in blocks])
    fabric = outcome.network.fabric
    task, src, dst, size, kind = (column[arrived] for column in (task, src, dst, size, kind))
    over = outcome.posted.columns["tasks"]["over"][task].astype(np.int64)
    resent = (
        np.where(over >= 0, outcome.flows["resent"][np.maximum(over, 0)], 0)
        if len(outcome.flows["resent"])
        else over * 0
    )
    return FlowTable(
        tuple(fabric.device_name(int(device)) for device in src),
        tuple(fabric.device_name(int(device)) for device in dst),
        size,
        kind,
        outcome.begin_s[task],
        outcome.end_s[task],
        _alone_s(outcome, task, over, size, kind),
        resent.astype(np.int64),
        tuple(_path(outcome, int(flow)) for flow in over),
        int((~arrived).sum()),
    )


def _class_of(outcome: Outcome, job: int) -> Longs:
    load = outcome.jobs[job]
    assert isinstance(load, Traffic)
    return load.traffic_class


def _path(outcome: Outcome, flow: int) -> str:
    if flow < 0:
        return _INSIDE
    return " ".join(outcome.network.port_name(int(port)) for port in outcome.posted.ways.row(flow))


def _alone_s(outcome: Outcome, task: Longs, over: Longs, size: Longs, kind: Longs) -> Floats:
    """Return the time of each flow alone on its path: latencies, its bytes, a packet for each further hop."""
    network, options = outcome.network, outcome.options
    delay = outcome.posted.columns["tasks"]["delay_ps"][task] / 1e12
    headers, payload = np.array(options.header_bytes), options.payload_bytes
    found = np.zeros(len(task))
    for i, flow in enumerate(over.tolist()):
        if flow < 0:
            line_s = size[i] / bus_Bps(outcome.posted.columns["buses"], -2 - flow) if flow < -1 else 0.0
            found[i] = delay[i] + line_s
            continue
        ports, header = outcome.posted.ways.row(flow), int(headers[kind[i]])
        found[i] = delay[i] + network.alone_s(ports, int(size[i]), payload, header)
    return np.maximum(found, 1e-15)
