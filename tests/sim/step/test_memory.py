"""Memory: against published peaks, by schedule and sharding, and the recomputation it makes necessary."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.sim.step import build_case, machine_from_fabric, memory, step
from syncline.sim.training import validate_training
from syncline.workload.read_job import load_job

H100 = machine_from_fabric(load("h100-64-rail"))


def held(**fields: Any) -> dict[str, float]:
    base = {"model": "llama3-8b", "parallel": {"dp": 8}, "batch": {"global": 8, "sequence": 8192}}
    return memory(build_case(load_job({**base, **fields}), H100)).as_dict()


def test_published_peaks_of_torchtitan_8b() -> None:
    peaks = []
    for run in validate_training().runs:
        found = re.search(r"peak memory ([\d.]+) GiB", run.run.best.text("notes"))
        if found and run.described.job.model.name == "llama3-8b":
            assert run.case is not None
            peaks.append((float(memory(run.case).total) / 2**30, float(found.group(1))))
    assert len(peaks) == 10
    assert np.median([abs(guess / peak - 1) for guess, peak in peaks]) < 0.12


def test_megatron_formula_of_activations() -> None:
    # Korthikanti 2022: 34 s b h bytes a layer without tensor parallelism and dropout masks (2 s b h of the 34).
    one = held(model="gpt3-175b", parallel={"dp": 1}, batch={"global": 1, "sequence": 2048}, attention="cudnn")
    assert one["activations"] == pytest.approx(96 * 32 * 2048 * 12288, rel=0.02)


@pytest.mark.parametrize(("zero", "expected"), [("none", 16.0), ("1", 2 + 2 + 12 / 8), ("2", 2 + 2 / 8 + 12 / 8)])
def test_sharding_of_the_state(zero: str, expected: float) -> None:
    one = held(parallel={"dp": 8, "zero": zero})
    state = one["parameters"] + one["gradients"] + one["optimizer"]
    assert state / 8.03e9 == pytest.approx(expected, rel=0.01)


def test_gpipe_keeps_every_micro_batch() -> None:
    batch = {"global": 32, "sequence": 4096}
    plain = held(model="llama3-70b", parallel={"tp": 8, "pp": 4, "dp": 1}, batch=batch)
    gpipe = held(model="llama3-70b", parallel={"tp": 8, "pp": 4, "dp": 1, "schedule": "gpipe"}, batch=batch)
    assert gpipe["activations"] == pytest.approx(8 * plain["activations"], rel=0.02)


def test_recompute_auto_takes_the_least_that_fits() -> None:
    fabric = load("h100-64-rail")
    base = {"model": "llama3-70b", "batch": {"global": 512, "micro": 1, "sequence": 8192}, "recompute": "auto"}
    roomy = step(fabric, load_job({**base, "parallel": {"tp": 8, "pp": 4}}))
    tight = step(fabric, load_job({**base, "parallel": {"zero": "fsdp"}}))
    assert roomy.job.recompute == "none" and roomy.fits
    assert tight.job.recompute == "full" and tight.fits
