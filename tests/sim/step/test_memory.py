"""Memory: against published peaks, by schedule and sharding, and the recomputation it makes necessary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.fabric.catalog import load_catalog
from syncline.planning.named_job import named_job
from syncline.sim.step.build import build_case
from syncline.sim.step.machine import machine_from_fabric, machine_of
from syncline.sim.step.memory import kept_per_token, memory, stages
from syncline.sim.step.step import step
from syncline.validation.training import TrainingValidation, validate_training
from syncline.workload.parallel import Parallel
from syncline.workload.pipeline import stage_order
from syncline.workload.read_job import load_job
from syncline.workload.stages import stage_layers, stage_layout

H100 = machine_from_fabric(load("h100-64-rail"))


def held(**fields: Any) -> dict[str, float]:
    base = {"model": "llama3-8b", "parallel": {"dp": 8}, "batch": {"global": 8, "sequence": 8192}}
    return memory(build_case(load_job({**base, **fields}), H100)).as_dict()


@pytest.fixture(scope="module")
def published() -> TrainingValidation:
    return validate_training()


@pytest.mark.parametrize(
    ("name", "tp", "pp", "virtual", "micro"),
    [("gpt3-22b", 8, 1, 1, 4), ("gpt3-175b", 8, 8, 3, 1), ("mt-nlg-530b", 8, 35, 3, 1), ("gpt3-1t", 8, 64, 1, 1)],
)
@pytest.mark.parametrize("way", ["plain", "sp", "sp+selective", "full"])
def test_korthikanti_activations(name: str, tp: int, pp: int, virtual: int, micro: int, way: str) -> None:
    """Table 2 of arXiv 2205.05198, and its factor of interleaving, at the four models of its table 3."""
    shape = {"gpt3-22b": (48, 6144, 64), "gpt3-175b": (96, 12288, 96), "mt-nlg-530b": (105, 20480, 128),
             "gpt3-1t": (128, 25600, 160)}[name]  # fmt: skip
    layers, h, a = shape
    s, b, t = 2048, micro, tp
    per_layer = {
        "plain": s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), "sp": s * b * h / t * (34 + 5 * a * s / h),
        "sp+selective": s * b * h / t * 34, "full": 2 * s * b * h,
    }[way]  # fmt: skip
    factor = 1 + (pp - 1) / (pp * virtual) if virtual > 1 else 1.0
    model = {"layers": layers, "hidden": h, "heads": a, "vocab": 51200, "tied": True}
    recompute = {"sp+selective": "selective", "full": "full"}.get(way, "none")
    split = {"tp": tp, "pp": pp, "dp": 1, "virtual": virtual, "sp": way.startswith("sp"), "zero": "none"}
    job = load_job({
        "model": model, "parallel": split, "batch": {"global": 8 * pp * micro, "micro": micro, "sequence": s},
        "precision": "fp16", "attention": "unfused", "recompute": recompute,
        "software": {"framework": "megatron", "year": 2022},
    })  # fmt: skip
    case = build_case(job, H100)
    kept = float(case.tokens * stages(case)[0].in_flight * kept_per_token(case)[0])
    assert kept == pytest.approx(per_layer * layers * factor, rel=0.03)


def test_llama_405b_as_published_fits() -> None:
    """Worked out in docs/method/memory.md: 78 GiB of the 79.1 that an H100 gives, and 43 % of its peak."""
    machine = replace(machine_of(load_catalog().host("dgx-h100"), load_catalog().link("NDR"), 8192), num_gpus=8192)
    found = step(machine, named_job("llama3-405b"))
    gib = {name: value / 2**30 for name, value in found.memory_bytes.items()}
    assert found.fits
    assert gib["total"] == pytest.approx(78.0, abs=0.5)
    assert gib["gradients"] == pytest.approx(11.88 + 0.19, abs=0.02)  # 8 layers of 398.5 M, fp32, and the own shard
    assert found.mfu == pytest.approx(0.43, abs=0.02)


def test_in_flight_is_what_the_schedule_keeps() -> None:
    for pp, virtual, num_micro in [(4, 1, 2), (4, 1, 9), (8, 1, 8), (4, 2, 4), (4, 3, 8), (8, 4, 32), (2, 4, 6)]:
        split = Parallel(tp=1, pp=pp, virtual=virtual, dp=1, schedule="interleaved" if virtual > 1 else "1f1b")
        layers = pp * virtual * 2
        job = load_job(
            {
                "model": {"layers": layers, "hidden": 64, "heads": 4, "vocab": 128},
                "parallel": split.model_dump(),
                "batch": {"global": num_micro, "sequence": 128},
            }
        )
        found = stages(build_case(job, H100))
        for number, which in ((0, 0), (1, 1), (pp - 1, 2)):
            if which == 1 and pp == 2:
                continue
            level = most = 0
            for phase, _, _ in stage_order(split, number, num_micro):
                level += {"F": 1, "B": -1}.get(phase, 0)
                most = max(most, level)
            assert float(found[which].in_flight) == pytest.approx(most * 2), (pp, virtual, num_micro, number)


def test_layers_of_the_stages_are_those_that_are_written() -> None:
    for layers, pp in [(61, 16), (126, 16), (80, 8), (7, 3), (5, 4), (9, 2)]:
        even = layers % pp != 0 and (layers + 2) % pp == 0
        found = stage_layers(np.array(float(layers)), np.array(float(pp)), np.array(float(even)), np.array(1.0))
        laid = [sum(chunks) for chunks in stage_layout(layers, pp)]
        assert sum(laid) == layers
        assert (laid[0], laid[-1]) == (float(found[0]), float(found[2]))
        assert max(laid) == max(float(x) for x in found) or pp == 2


def test_offload_and_partial_recomputation_need_less() -> None:
    base = held()
    assert held(offload="optimizer")["optimizer"] == 0 < base["optimizer"]
    assert held(offload="activations")["activations"] < 0.2 * base["activations"]
    shares = [
        held(recompute=kind)["activations"] for kind in ("none", "partial-25", "partial-50", "partial-75", "full")
    ]
    assert shares == sorted(shares, reverse=True)


def test_published_runs_fit(published: TrainingValidation) -> None:
    runs = [run for run in published.measured if run.case is not None]
    fit = [bool(memory(run.case).fits) for run in runs if run.case is not None]
    assert len(fit) > 190 and np.mean(fit) >= 0.95


@pytest.mark.parametrize(
    ("zero", "expected"), [("none", 18.0), ("1", 2 + 4 + 12 / 8), ("2", 2 + 2 / 8 + 12 / 8 + 0.06)]
)
def test_sharding_of_the_state(zero: str, expected: float) -> None:
    one = held(parallel={"dp": 8, "zero": zero})
    state = one["parameters"] + one["gradients"] + one["optimizer"]
    assert state / 8.03e9 == pytest.approx(expected, rel=0.02)


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


def test_parts_that_are_shares_of_others() -> None:
    one = held()
    moving = one["activations"] + one["logits"]
    assert one["fragmentation"] == pytest.approx(0.04 * moving)  # peak reserved over peak allocated: a few per cent
    for allocator, share in (("expandable", 0.02), ("planned", 0.01)):
        assert held(allocator=allocator)["fragmentation"] == pytest.approx(share * moving)
    parts = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "fragmentation")
    assert one["total"] == pytest.approx(sum(one[part] for part in parts))
    tokens, vocabulary = 8192, 128_256
    assert one["logits"] == pytest.approx(8 * tokens * vocabulary)  # fp32 twice: the logits and their gradient


def test_pytorch_holds_its_loss_and_the_buckets_of_ddp() -> None:
    """GPT-2 of 12 layers, 1,600 wide, 4 x 1,024 tokens under autocast, as torch 2.13 holds it at the loss."""
    model = {
        "layers": 12, "hidden": 1600, "heads": 25, "ffn": 6400, "vocab": 50257, "tied": True, "biases": True,
        "norm_biases": True, "positions": 1024,
    }  # fmt: skip
    job = load_job({
        "model": model, "parallel": {"dp": 8, "zero": "none"}, "batch": {"global": 32, "micro": 4, "sequence": 1024},
        "gradient_bytes": 4, "compiled": False, "software": {"framework": "pytorch"},
    })  # fmt: skip
    found = memory(build_case(job, H100)).as_dict()
    params = job.model.params
    assert found["logits"] == 14 * 4096 * 50257
    assert found["gradients"] == pytest.approx(4 * params, rel=0.001)  # buckets: of gradients there are none yet
    layers = 12 * 4096 * (40 * 1600 + 4 * 25)
    assert found["activations"] == pytest.approx(layers, rel=0.01)
    fused = memory(build_case(job.model_copy(update={"fused_loss": True}), H100)).as_dict()
    assert fused["logits"] <= 8 * 4096 * 50257
