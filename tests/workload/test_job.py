"""Jobs that are read, filled in and refused: what is wrong, why, and the nearest thing that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.fabric import load
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.volumes import wire_share


def job(**fields: Any):
    return load_job({"model": "llama3-70b", "batch": {"global": 64, "sequence": 8192}, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parallel": {"tp": 12}}, ["tp is 12", "does not divide the 64 attention heads", "tp: 8"]),
        ({"parallel": {"tp": 128}}, ["more than the 64 attention heads", "whole heads", "tp: 64"]),
        ({"parallel": {"pp": 99}}, ["pp is 99", "has 80 layers", "pp: 80"]),
        ({"parallel": {"pp": 8, "virtual": 40}}, ["320 chunks", "80 layers", "virtual: 10"]),
        ({"parallel": {"virtual": 4}}, ["there is no pipeline", "leave virtual out"]),
        ({"parallel": {"pp": 4, "virtual": 2, "schedule": "gpipe"}}, ["gpipe has one chunk a rank", "interleaved"]),
        ({"parallel": {"dp": 7}}, ["global batch of 64 does not divide over dp 7", "`batch: {global: 63}` or 70"]),
        ({"parallel": {"ep": 2}}, ["ep is 2", "has no experts"]),
        ({"model": "mixtral-8x7b", "parallel": {"ep": 3}}, ["does not divide the 8 experts", "ep: 2"]),
        ({"parallel": {"tp": 0}}, ["parallel.tp"]),
        ({"colour": "red"}, ['unknown key "colour"', "`syncline guide job-file`"]),
        ({"model": None}, ['"model" is missing']),
    ],
)
def test_impossible_jobs_say_what_why_and_what_works(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DescriptionError) as error:
        job(**fields)
    for word in words:
        assert word in str(error.value)


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: llama3-70b\nparallel: {tp: 8}\nbatch:\n  global: 64\n  sequence: -1\n")
    with pytest.raises(DescriptionError, match=r"job\.yaml line 5.*at least 1, not -1"):
        load_job(path)
    path.write_text("model: llama3-70b\nbatch: {global: 64}\nparallel:\n  tp: 7\n")
    with pytest.raises(DescriptionError, match=r"job\.yaml line 3: tp is 7"):
        load_job(path)


def test_dp_is_filled_in_from_the_gpus() -> None:
    filled = job(parallel={"tp": 8, "pp": 4}).on(256)
    assert filled.parallel.dp == 8
    assert filled.num_micro == 8
    with pytest.raises(DescriptionError, match=r"100 GPUs do not divide into replicas of 32") as error:
        job(parallel={"tp": 8, "pp": 4}).on(100)
    assert "Use 96 GPUs" in error.value.hint
    with pytest.raises(DescriptionError, match="needs 512 GPUs, but there are 256") as error:
        job(parallel={"tp": 8, "dp": 64}).on(256)
    assert error.value.hint == "dp: 32 fits."


def test_defaults_depend_on_framework_and_year_and_are_listed() -> None:
    old = facts_of(job(software={"framework": "megatron", "year": 2021}))
    new = facts_of(job(software={"framework": "megatron", "year": 2025}))
    torch = facts_of(job(parallel={"zero": "fsdp"}, software={"year": 2023}))
    assert (old.attention, new.attention, torch.attention) == ("unfused", "cudnn", "triton")
    assert not torch.compiled and torch.early_stop and torch.framework == "pytorch"
    assert new.assumed["attention"] == "cudnn"
    assert "attention" not in facts_of(job(attention="fa2")).assumed


def test_a_model_by_shape_by_change_and_by_config(tmp_path: Path) -> None:
    shaped = job(model={"layers": 2, "hidden": 64, "heads": 4, "vocab": 100})
    assert isinstance(shaped.model, Shape)
    changed = job(model={"like": "llama3-8b", "layers": 16})
    assert isinstance(changed.model, Shape) and changed.model.layers == 16 and changed.model.gated
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
              "tie_word_embeddings": False}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "job.yaml").write_text("model: {hf: config.json}\nbatch: {global: 8}\n")
    assert load_job(tmp_path / "job.yaml").model.params == 8_030_261_248


def test_codecs_shrink_the_wire() -> None:
    assert wire_share("plain", 4) == wire_share("none", 2) == wire_share("bf16", 2) == 1.0
    assert wire_share("int8", 4) == pytest.approx(0.25, rel=0.02)
    assert wire_share("sign", 2) == wire_share("onebit", 2) == pytest.approx(1 / 16, rel=0.1)
    assert wire_share("powersgd:rank=4", 4) == pytest.approx(2 * 4 / 2048, rel=0.01)
    with pytest.raises(DescriptionError, match='no codec "zip"'):
        wire_share("zip", 4)


def test_codecs_have_one_name_and_old_ones_are_read() -> None:
    names = {
        "none": "plain",
        "onebit": "sign",
        "INT8": "int8",
        "powersgd:2": "powersgd:rank=2",
    }
    assert {old: job(sync={"codec": old}).sync.codec for old in names} == names
    with pytest.raises(DescriptionError, match=r'sync\.codec: there is no codec "zip"'):
        job(sync={"codec": "zip"})


def test_one_bit_adam_sends_signs_and_needs_whole_parameters() -> None:
    assert job(parallel={"zero": "none"}, sync={"method": "one-bit-adam"}).sync.codec == "sign"
    assert job(sync={"method": "one-bit-adam"}).parallel.zero == "none"
    with pytest.raises(DescriptionError, match="one-bit-adam needs whole parameters on every rank: `zero: none`"):
        job(parallel={"zero": 1}, sync={"method": "one-bit-adam"})
    with pytest.raises(DescriptionError, match="is a form of adam, and the optimizer is sgd"):
        job(parallel={"zero": "none"}, sync={"method": "one-bit-adam"}, optimizer="sgd")


def test_replicas_that_part_hold_all_or_part_in_groups() -> None:
    assert job(sync={"method": "diloco", "every": 50}).parallel.zero == "none"
    assert job(parallel={"zero": "hsdp"}, sync={"method": "diloco", "every": 50}).sync.period == 50
    with pytest.raises(DescriptionError, match=r"diloco needs whole parameters .*or `zero: hsdp`"):
        job(parallel={"zero": 2}, sync={"method": "diloco", "every": 50})
    with pytest.raises(DescriptionError, match="every is for local-sgd and diloco, and the method is allreduce"):
        job(sync={"every": 50})


def test_sequences_and_shard_groups_that_do_not_divide() -> None:
    with pytest.raises(DescriptionError, match="a sequence of 8,191 does not divide into 4 slices"):
        job(parallel={"cp": 2}, batch={"global": 8, "sequence": 8191})
    assert job(parallel={"zero": "hsdp", "dp": 12}, batch={"global": 12}).parallel.shard_ranks == 6
    with pytest.raises(DescriptionError, match="shard is 7, which does not divide the dp x cp = 12 replicas") as error:
        job(parallel={"zero": "hsdp", "dp": 12, "shard": 7}, batch={"global": 12})
    assert error.value.hint == "The nearest that works is shard: 6."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model: llama3-8b\nbatch: {globl: 8}\n", 'line 2: unknown key "globl".\n  Did you mean "global"?'),
        ("model: llama3-8b\nbatch: 8\n", "line 2: batch: must be a mapping, not 8."),
        (
            "model: {layers: 2, hiden: 8}\nbatch: {global: 8}\n",
            'line 1: unknown key "hiden".\n  Did you mean "hidden"?',
        ),
        ("model: llama3-8b\nbatch: {global: 0}\n", "line 2: batch.global: must be at least 1, not 0."),
        ("", "the file is empty.\n  See `syncline guide job-file`"),
        ("a: [\n", "not valid YAML"),
        ("model: {like: resnet-50, layers: 3}\nbatch: {global: 8}\n", "resnet-50 is a list of layers"),
    ],
)
def test_mistakes_are_said_in_plain_words(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(DescriptionError) as error:
        load_job(tmp_path / "job.yaml")
    assert says in str(error.value)
    assert "cluster-file" not in str(error.value)


@pytest.mark.parametrize(
    ("parallel", "batch", "rule"),
    [
        ({"tp": 8, "pp": 4, "virtual": 3}, 64, "virtual-stages"),  # 80 layers, 20 a stage
        ({"tp": 8, "pp": 4, "virtual": 2}, 6, "interleaved-micro-batches"),
    ],
)
def test_step_refuses_the_impossible_by_its_rule(parallel: dict[str, int], batch: int, rule: str) -> None:
    machine = machine_from_fabric(load("h100-64-rail"))
    data = {"model": "llama3-70b", "parallel": {**parallel, "dp": 1}, "batch": {"global": batch}, "gpus": 32}
    with pytest.raises(DescriptionError, match=f"Rule {rule}|does not divide|do not divide") as error:
        step(machine, load_job(data))
    assert rule in (error.value.detail or "")


def test_kv_heads_are_held_whole_or_copied() -> None:
    shape = {"layers": 8, "hidden": 1536, "heads": 12, "kv_heads": 4, "vocab": 1000}
    with pytest.raises(DescriptionError, match="4 KV heads") as error:
        load_job({"model": shape, "parallel": {"tp": 6}, "batch": {"global": 8}})
    assert "kv-heads" in error.value.detail
    assert load_job({"model": shape, "parallel": {"tp": 12}, "batch": {"global": 8}}).parallel.tp == 12
