"""Fit the constants of the NCCL model to the published rows that ship, and write them as data files.

    python -m research.collectives.fit_constants            # about four minutes on two cores

Writes `nccl_fitted.yaml` (constants, and those found without each system) into `src/syncline/sim/data/`. Run
`python -m research.intervals.tables --write` after it: intervals are made from what the new constants leave.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from research.collectives.nccl_fit import NcclFit, Sweep, fit, fit_left_out
from research.published import FITTED_COLLECTIVES, collective_rows

import syncline.sim
from syncline.sim.nccl.constants import default_constants
from syncline.sim.nccl.system import MAX_POINT_HOSTS
from syncline.validation.collectives import LARGE_BYTES, spikes, sweeps
from syncline.validation.systems import load_systems

DATA = Path(syncline.sim.__file__).parent / "data"
HEAD = """\
# Constants fitted to sets 0 to 4 of research/data/nccl-tests.csv by `python -m research.collectives.fit_constants`,
# not by hand: those that the rows need. They win over the priors in nccl_machine.yaml and nccl_networks.yaml, which
# say what each one is. left_out: what the same fit finds otherwise without one system, for its left-out error.
"""


def sweeps_of(blind_sets: Sequence[int]) -> list[Sweep]:
    """Return the series that the fit uses, with a weight for each row."""
    systems = load_systems(None)
    found = []
    for blind_set in blind_sets:
        for described, rows in sweeps(collective_rows(blind_set), systems)[0]:
            if "another software stack" in described.remark:
                continue
            if described.remark.startswith("not fitted"):
                continue
            measured = np.array([r.time_us for r in rows])
            sizes = np.array([r.size_bytes for r in rows])
            # Large messages repeat within 1 or 2 %, small ones within 5 to 10: an error counts as its noise allows.
            sure = 1.0 if "assumed" in rows[0].notes else 3.0
            # Releases before 2.12 are slower between 512 KiB and 16 MiB than anything that runs today.
            current = 0.5 if described.system.nccl < (2, 12) else 1.0
            # Past 64 NVLink domains one machine on one day speaks for all: it counts, but less.
            current *= 0.5 if described.system.num_islands > MAX_POINT_HOSTS else 1.0
            weight = current * np.where(spikes(measured), 0.25, 1.0) * np.where(sizes >= LARGE_BYTES, sure, 1.0)
            found.append(Sweep(rows[0].system, described.system, rows[0].op, sizes, measured, weight))
    return found


def _as_data(fitted: NcclFit) -> dict[str, Any]:
    return {"machine": fitted.machine_rows(), "networks": {kind: row for kind, row in fitted.networks.items() if row}}


def _difference(fitted: NcclFit, full: NcclFit) -> dict[str, Any]:
    """Return what a fit without one system found otherwise; null: a kind that then has no rows of its own."""
    mine, whole = _as_data(fitted), _as_data(full)
    machine = {name: value for name, value in mine["machine"].items() if value != whole["machine"][name]}
    kinds = {kind: mine["networks"].get(kind) for kind in whole["networks"]}
    return {"machine": machine, "networks": {k: v for k, v in kinds.items() if v != whole["networks"][k]}}


def run() -> dict[str, Any]:
    """Return how far a fresh fit (without the left-out ones) is from the constants that ship; writes nothing."""
    began = time.process_time()
    fresh, shipped_constants = fit(sweeps_of(FITTED_COLLECTIVES)).constants(), default_constants()
    used = sweeps_of(FITTED_COLLECTIVES)
    ratios = [abs(s.residual(fresh) - s.residual(shipped_constants)) for s in used]
    return {
        "cpu_s": time.process_time() - began,
        "num_sweeps": len(used),
        "num_rows": sum(len(s.sizes) for s in used),
        "largest_change_of_a_prediction": float(np.concatenate(ratios).max()),
    }


def main() -> None:
    """Fit, leave each system out in turn, and write the data files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="skip the left-out fits")
    arguments = parser.parse_args()
    quick = arguments.quick
    begin = time.process_time()
    used = sweeps_of(FITTED_COLLECTIVES)
    full = fit(used)
    print(
        f"{len(used)} sweeps, {sum(len(s.sizes) for s in used)} rows: {full.num_constants} constants in "
        f"{time.process_time() - begin:.0f} CPU s"
    )
    data = _as_data(full)
    if not quick:
        names = list(dict.fromkeys(s.label for s in used))
        with ProcessPoolExecutor(2) as pool:
            each = pool.map(fit_left_out, repeat(used), repeat(full), [[name] for name in names])
            without = {name: fitted for one in each for name, fitted in one.items()}
        data["left_out"] = {name: _difference(fitted, full) for name, fitted in without.items()}
        print(f"left out {len(without)} systems: {time.process_time() - begin:.0f} CPU s of this process")
    text = yaml.safe_dump(data, sort_keys=False, width=120, default_flow_style=None)
    (DATA / "nccl_fitted.yaml").write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
