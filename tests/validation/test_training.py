"""Published training runs are predicted to their targets, and one's own rows are read or listed with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.questions.validate import validate
from syncline.validation.metrics import flops_of_step, step_seconds
from syncline.workload.read_job import load_job

HEAD = "source,model,gpu,gpus,tp,pp,global_batch,micro_batch,seq,precision,interconnect,metric,value"
ROW = "ours,llama3-8b,8 x H100,64,1,1,256,1,8192,bf16,InfiniBand 400Gb/s per GPU,tokens_per_s_per_gpu,9000"


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    found: dict[str, Any] = validate("training").to_json()
    return found


def test_published_runs_are_predicted_to_their_targets(result: dict[str, Any]) -> None:
    overall, left_out = result["overall"], result["left_out"]
    assert result["rows"] == 346 and result["predicted_rows"] >= 299
    assert overall["dense"]["median_error"] <= 0.04 and overall["dense"]["p90_error"] <= 0.12
    assert overall["all"]["median_error"] <= 0.05 and overall["all"]["p90_error"] <= 0.18
    assert result["scaling_ratios"]["median_error"] <= 0.02
    assert result["rank"]["median"] >= 0.97
    assert left_out["all"]["median_error"] <= 0.055
    assert result["constants"]["num_fitted"] == len(result["constants"]["fitted"]) == 12


def test_rows_that_are_not_predicted_say_why(result: dict[str, Any]) -> None:
    assert result["predicted_rows"] + len(result["unmodelled"]) == result["rows"]
    assert all(row["reason"] and not row["reason"].endswith(".") for row in result["unmodelled"])


def validated(tmp_path: Path, text: str, systems: str = "") -> dict[str, Any]:
    data, described = tmp_path / "ours.csv", tmp_path / "ours.yaml"
    data.write_text(text)
    described.write_text(systems)
    found: dict[str, Any] = validate("training", data, described if systems else None).to_json()
    return found


def test_a_row_of_ones_own_is_predicted(tmp_path: Path) -> None:
    (run,) = validated(tmp_path, f"{HEAD}\n{ROW}\n")["runs"]
    assert run["measured_s"] == pytest.approx(256 * 8192 / 64 / 9000)
    assert (run["gpus"], run["dp"], run["precision"], run["line"]) == (64, 64, "bf16", 2)
    assert abs(run["error"]) < 0.5


def test_columns_and_cells_as_tables_write_them(tmp_path: Path) -> None:
    head = "Model,GPU type,# GPUs,TP size,Pipeline parallel,GBS,Seq len,dtype,Activation checkpointing,Sharding,MFU (%)"
    cells = 'Llama3 70B,NVIDIA H100-SXM5-80GB,"1,024",8,4,4M tokens,8k,amp_bf16,full,ZeRO-1,41 %'
    (run,) = validated(tmp_path, f"{head}\n{cells}\n")["runs"]
    assert (run["gpus"], run["tp"], run["pp"], run["dp"]) == (1024, 8, 4, 32)
    assert (run["global_batch"], run["sequence"], run["recompute"]) == (512, 8192, "full")
    assert run["source"] == "ours" and run["convention"] == "palm"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("llama3-8b", "my-own-7b"), 'model "my-own-7b" is not known: fill layers, hidden, heads and vocab'),
        (("8 x H100", "abacus"), 'accelerator "abacus" is neither a host nor a GPU of the catalogue'),
        ((",64,1,1,", ",64,,,"), "the parallel layout is not given: fill tp, pp or dp"),
        ((",64,1,1,", ",64,3,1,"), "tp x pp x cp x dp is 63, not 64 GPUs"),
        ((",256,", ",,"), "global_batch is not given: sequences a step, over all GPUs"),
        ((",9000", ",fast"), 'tokens_per_s_per_gpu "fast" is not a number'),
        ((",9000", ",0"), "no positive speed is given"),
        (("tokens_per_s_per_gpu", "joy"), 'metric "joy" is not one that can be converted to a step time'),
        (("bf16", "fp7"), "precision: must be fp32"),
        ((" per GPU", ""), 'the network "InfiniBand 400Gb/s" does not say whose rate it is'),
    ],
)  # fmt: skip
def test_a_row_that_states_too_little_is_listed(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    (row,) = validated(tmp_path, f"{HEAD}\n{ROW.replace(*change)}\n")["unmodelled"]
    assert row["reason"].startswith(reason), row


def test_a_systems_file_adds_what_rows_leave_out(tmp_path: Path) -> None:
    systems = """
- system: ours
  cluster: {host: 8 x A100, network: rail-optimized HDR}
  job: {recompute: full}
  software: {framework: megatron, year: 2023}
  convention: megatron-hw
"""
    text = f"{HEAD}\n{ROW.replace('tokens_per_s_per_gpu,9000', 'tflops_per_gpu,150')}\n"
    (run,) = validated(tmp_path, text, systems)["runs"]
    assert "A100" in run["gpu"] and run["recompute"] == "full" and run["convention"] == "megatron-hw"
    assert run["software_year"] == 2023
    assert validated(tmp_path, text, "- {system: ours, skip: a mixture of GPUs}")["unmodelled"][0]["reason"] == (
        "a mixture of GPUs"
    )


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("InfiniBand 400Gb/s per GPU", "400 Gb/s a GPU"),
        ("RoCE 8x200 Gbps", "200 Gb/s a GPU"),
        ("3.2 Tb/s per host", "400 Gb/s a GPU"),
        ("25 GB/s per GPU", "200 Gb/s a GPU"),
        ("NVLink, EFA", "no network rate given: 400 Gb/s a GPU, as dgx-h100 has"),
    ],
)
def test_the_network_of_a_row(tmp_path: Path, text: str, reading: str) -> None:
    row = ROW.replace("InfiniBand 400Gb/s per GPU", f'"{text}"')
    (run,) = validated(tmp_path, f"{HEAD}\n{row}\n")["runs"]
    assert run["readings"] == [reading]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,model,gpu,gpus,value\n", 'no column "metric"'),
        ("model,gpu,metric,value\n", 'no column "gpus"'),
        ("model,gpu,gpus,batch,metric,value\n", "may be the batch of a step or that of a GPU"),
        (f"{HEAD}\n", "no rows"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        validated(tmp_path, text)


def test_conversions_follow_their_formulas() -> None:
    job = load_job({"model": "gpt3-175b", "batch": {"global": 64, "sequence": 2048}, "recompute": "full"})
    hw = flops_of_step(job, "megatron-hw", 175e9)
    assert hw == pytest.approx(
        96 * 64 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + job.model.vocab / (16 * 96 * 12288))  # type: ignore[union-attr]
    )
    assert step_seconds("tokens_per_s_per_gpu", 100.0, job, 64, "palm", 1e15, 175e9) == pytest.approx(64 * 2048 / 6400)
    assert step_seconds("hw_tflops_per_gpu", 150.0, job, 64, "megatron-hw", 1e15, 175e9) == pytest.approx(
        hw / 150e12 / 64
    )
    with pytest.raises(DescriptionError, match="not a step time"):
        step_seconds("gpu_hours_1.0T_tokens", 1.0, job, 64, "palm", 1e15, 1e9)
