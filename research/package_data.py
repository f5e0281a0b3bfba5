"""Write the data of the package that are derived from `research/data`: `python -m research.package_data`.

- validate/data/training-runs.json.gz: the training runs that the constants were fitted to, each as a job on a host
- validate/data/nccl-tests.csv.gz: the nccl-tests rows of the first set, without columns that nothing reads
- validate/data/coverage.yaml and sim/data/uncertainty.yaml: intervals and how often they hold (with --intervals)
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

from research.published import COLLECTIVES, _subset, training_rows
from research.training.observed import ObservedRun, observe
from research.training.systems import load_systems

from syncline.fabric.catalog import HostModel
from syncline.validation.collectives import SHIPPED as SHIPPED_COLLECTIVES
from syncline.validation.training_run import SHIPPED as SHIPPED_RUNS
from syncline.validation.training_run import parts, stored_machine

PACKAGE = Path(__file__).parents[1] / "src" / "syncline"
DATA = PACKAGE / "validation" / "data"
#: A host that is not in the catalogue is written as changes of this one.
USUAL_HOST = "h100-pcie-4"


def stored_runs() -> dict[str, Any]:
    """Return the fitted training runs as the package stores them."""
    rows = training_rows(0)
    runs, lost = observe(rows, load_systems(None))
    skipped = [
        {"line": item.row.line, "reason": item.reason} | {c: item.row.text(c) for c in ("source", "model", "metric")}
        for item in lost
    ]
    return {"rows": len(rows), "runs": [_stored(run) for run in runs], "skipped": skipped}


def _stored(observed: ObservedRun) -> dict[str, Any]:
    run, described = observed.published, observed.described
    assert described.host is not None
    names = ("line", "table", "model", "metric", "convention", "measured_s", "num_gpus", "num_rows", "is_open")
    host = _host(described.host)
    machine = {"host": host, "link": described.link, "nic_Bps": run.machine.nic_Bps,
               "oversubscription": described.oversubscription}  # fmt: skip
    found = stored_machine(host, described.link, run.machine.nic_Bps, described.oversubscription, run.num_gpus)
    assert found == run.machine, (run.line, found, run.machine)
    job = run.job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert type(run.job).model_validate(job) == run.job, run.line
    fields = {name: getattr(run, name) for name in names}
    return fields | machine | {"job": job, "remarks": list(run.remarks), "readings": list(run.readings)}


def _host(host: HostModel) -> dict[str, Any]:
    known = {part.name for part in parts().parts("host")}
    base = host.name if host.name in known else USUAL_HOST
    usual = parts().host(base).model_dump()
    changes = {key: value for key, value in host.model_dump().items() if value != usual[key]}
    return {"model": base, **changes}


def nccl_tests() -> str:
    """Return the rows of the first set without the bandwidths where a time is stated."""
    rows = list(csv.DictReader(io.StringIO(_subset(COLLECTIVES, 0)[0])))
    assert all(row["time_us"] for row in rows)
    columns = [name for name in rows[0] if name not in ("algbw_gbps", "busbw_gbps")]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def packed(text: str) -> bytes:
    """Return a text compressed, the same bytes every time."""
    return gzip.compress(text.encode(), 9, mtime=0)


def main() -> None:
    """Write what the package needs."""
    (DATA / SHIPPED_RUNS).write_bytes(packed(json.dumps(stored_runs(), separators=(",", ":"))))
    (DATA / SHIPPED_COLLECTIVES).write_bytes(packed(nccl_tests()))
    if "--intervals" in sys.argv:
        from research.intervals.tables import write_tables

        write_tables()


if __name__ == "__main__":
    main()
