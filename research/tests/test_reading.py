"""Published runs: the targets, the reading of rows, their conversion, and rows of unseen systems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from research.published import training_rows
from research.training.accelerator import host_of, network_of
from research.training.fit import fit, fittable
from research.training.guess import year_of
from research.training.observed import observe
from research.training.read import describe
from research.training.rows import PublishedRow, read_rows, runs_of
from research.training.systems import load_systems, read_systems

from syncline.errors import DescriptionError
from syncline.sim.step.constants import default_constants, document


def test_the_shipped_constants_are_what_the_fit_gives() -> None:
    runs, _ = observe(training_rows(0), load_systems(None))
    fresh = asdict(fit(fittable(runs)).fitted)
    for name, value in asdict(default_constants().fitted).items():
        # Fitted before gated blocks were counted operator by operator, which moves two of its runs and c_eag by 1.9 %,
        # and before eleven runs said how tokens reach their experts, which moves exposed_ep and c_mem by 2.2 and 2.1 %.
        assert value == pytest.approx(fresh[name], rel=2.5e-2), name
    assert document()["fitted_on"]["runs"] == len(fittable(runs))


def test_two_metrics_of_one_run_say_the_same() -> None:
    """The conventions are right if a row in TFLOP/s or MFU and one in tokens/s give one step time."""
    runs, _ = observe(training_rows(0), load_systems(None))
    gaps = {run.source: abs(run.rows[1][1] / run.rows[0][1] - 1) for run in runs if len(run.rows) > 1}
    assert gaps["mosaicml/llm-foundry scripts/train/benchmarking/README.md"] < 0.005
    assert gaps["Korthikanti 2022"] < 0.01
    assert gaps["MT-NLG 530B"] < 0.02
    experts = [abs(run.rows[1][1] / run.rows[0][1] - 1) for run in runs if run.has_experts]
    assert np.median(experts) < 0.01


def row(**cells: str) -> PublishedRow:
    base = {"source": "a paper 2024", "model": "GPT-175B", "layers": "96", "hidden": "12288", "heads": "96",
            "seq": "2048", "vocab": "51200", "gpu": "H100", "gpus": "64", "tp": "8", "pp": "8", "dp": "1",
            "micro_batch": "1", "global_batch": "64", "metric": "iteration_time_s", "value": "10"}  # fmt: skip
    return PublishedRow(2, base | cells)


@pytest.mark.parametrize(
    ("text", "expected_GBps"),
    [
        ("Selene: 8x HDR 200Gb/s per DGX A100", 25.0),
        ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 50.0),
        ("RoCE 400 Gb/s per GPU, 3-tier Clos", 50.0),
        ("1600 Gbps node-node interconnect (RoCE)", 25.0),
        ("100 Gbps inter-node", 12.5 / 8),
    ],
)
def test_networks_are_read_from_text(text: str, expected_GBps: float) -> None:
    one = row(interconnect=text)
    assert network_of(one, host_of(one)).gpu_Bps == pytest.approx(expected_GBps * 1e9)


@pytest.mark.parametrize(
    ("source", "year"),
    [
        ("arXiv 2205.05198", 2021),
        ("arXiv 2407.21783", 2024),
        ("MLPerf Training v4.0 closed", 2024),
        ("25.11 NeMo Container", 2025),
        ("unknown", 2023),
    ],
)
def test_the_year_of_the_software(source: str, year: int) -> None:
    assert year_of(row(source=source)) == year


def test_a_row_of_an_unseen_system_is_described_by_defaults() -> None:
    found = describe(row(gpu="NVIDIA A100-SXM4-40GB", interconnect="4x HDR 200Gb/s"), ())
    assert found.machine.gpu.name == "A100-SXM4-40GB" and found.machine.nic_Bps == pytest.approx(12.5e9)
    assert found.job.parallel.zero == "1"
    assert found.job.recompute == "full" and any("cannot fit" in remark for remark in found.remarks)
    assert describe(row(gpu="H100"), ()).job.recompute == "none"
    old = describe(row(source="a 2020 paper", gpu="V100"), ())
    assert old.job.recompute == "full" and old.job.precision == "fp16"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": "abacus"}, "not in the catalogue"),
        ({"layers": "", "model": "secret"}, "shape"),
        ({"model": "some 8x9B", "layers": "32"}, "experts"),
        ({"model": "Stable Diffusion"}, "not a decoder"),
        ({"dp": "3"}, "is not 64 GPUs"),
        ({"gpus": ""}, "number of GPUs"),
        ({"global_batch": "63", "dp": "2", "pp": "4"}, "does not divide"),
    ],
)
def test_rows_that_cannot_be_described(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(DescriptionError, match=reason):
        describe(row(**cells), ())


def test_a_systems_file_adds_facts(tmp_path: Path) -> None:
    entries = read_systems(
        'systems:\n- source: "a paper"\n  job: {recompute: full, attention: fa2}\n  network: 100\n', "s.yaml"
    )
    found = describe(row(), entries)
    assert found.job.recompute == "full" and found.job.attention == "fa2"
    assert found.machine.nic_Bps == pytest.approx(12.5e9)
    with pytest.raises(DescriptionError, match=r's\.yaml line 2: unknown key "colour"'):
        read_systems("systems:\n- source: a\n  colour: red\n", "s.yaml")
    with pytest.raises(DescriptionError, match="needs a pattern"):
        read_systems("systems:\n- job: {}\n", "s.yaml")


def test_reading_rows() -> None:
    with pytest.raises(DescriptionError, match='no column "metric"'):
        read_rows("source,model,gpu,gpus,value\n", "x.csv")
    with pytest.raises(DescriptionError, match="no rows"):
        read_rows("source,model,gpu,gpus,metric,value\n", "x.csv")
    text = (
        "source,model,gpu,gpus,metric,value\ns,m,g,8,mfu_pct,40\ns,m,g,8,tokens_per_s_per_gpu,5\ns,m,g,8,mfu_pct,41\n"
    )
    runs = runs_of(read_rows(text, "x.csv"))
    assert [run.best.text("metric") for run in runs] == ["tokens_per_s_per_gpu", "mfu_pct"]
