"""A step on a fabric: its answer, its timeline, other ways to agree, storage, and what limits it."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import DescriptionError, SimulationError
from syncline.fabric import load
from syncline.questions.step import WarmUp, prediction
from syncline.report.text.step import step_lines
from syncline.sim.step.arithmetic.params import layer_params
from syncline.sim.step.decode import decode_step
from syncline.sim.step.spans import step_timeline
from syncline.sim.step.step import StepResult, step
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape

RAIL = load("h100-64-rail")
SLOW = load("old-10gbe")


def price(fabric=RAIL, **fields: Any):
    base = {
        "model": "llama3-70b",
        "parallel": {"tp": 8, "pp": 4},
        "batch": {"global": 512, "micro": 1, "sequence": 8192},
    }
    return step(fabric, load_job({**base, **fields}))


def test_parts_and_traffic_of_a_step_add_up() -> None:
    data = price()
    assert sum(data.parts_s.values()) == pytest.approx(data.step_time_s)
    assert data.tokens_per_s == pytest.approx(512 * 8192 / data.step_time_s)
    assert 0.3 < data.mfu < 0.6
    assert set(data.comm_bytes) == {"tensor", "pipeline", "data", "gather again"}
    assert data.comm_bytes["tensor"]["network"] == 0 and data.comm_bytes["data"]["scale-up"] == 0
    assert data.facts.assumed["attention"] == "cudnn"


@pytest.mark.parametrize(
    "parallel",
    [
        {"tp": 8, "pp": 4},
        {"tp": 8, "pp": 4, "schedule": "interleaved", "virtual": 5},
        {"tp": 8, "pp": 8, "schedule": "gpipe"},
        {"tp": 8, "pp": 16, "schedule": "zero-bubble"},
        {"zero": "fsdp"},
    ],
)
def test_the_timeline_takes_as_long_as_the_price(parallel: dict[str, Any]) -> None:
    result = price(parallel=parallel, batch={"global": 1024, "micro": 1, "sequence": 8192})
    timeline = step_timeline(result)
    assert timeline.makespan_s == pytest.approx(result.step_time_s, rel=0.03)
    assert timeline.num_ranks == result.job.parallel.pp
    assert float(timeline.exposed_s().max()) == pytest.approx(result.exposed_comm_s, rel=0.35)
    assert timeline.source.ignores


def test_a_slow_network_is_named_as_the_limit() -> None:
    result = step(SLOW, load_job({"model": "gpt3-350m", "precision": "fp16", "parallel": {"zero": "none"},
                                  "batch": {"global": SLOW.num_gpus, "micro": 1, "sequence": 1024}}))  # fmt: skip
    assert result.limit.what == "dp"
    assert "network" in str(result.limit.link)


def test_accumulation_spreads_the_gradient_exchange() -> None:
    def share(total: int) -> float:
        result = price(SLOW, model="gpt3-1.3b", precision="fp16", parallel={"zero": "none"},
                       batch={"global": total, "micro": 1, "sequence": 1024})  # fmt: skip
        return float(result.parts_s["dp"] / result.step_time_s)

    assert share(8 * SLOW.num_gpus) < share(SLOW.num_gpus)


@pytest.mark.parametrize(
    ("sync", "less"),
    [
        ({"method": "local-sgd", "every": 8}, 0.2),
        ({"method": "diloco", "every": 100}, 0.05),
        ({"codec": "int8"}, 0.8),
        ({"method": "one-bit-adam"}, 0.2),
        ({"method": "bounded-staleness", "staleness": 4}, 0.96),
    ],
)
def test_other_ways_to_agree_send_less_or_later(sync: dict[str, Any], less: float) -> None:
    fields = {"model": "gpt3-1.3b", "precision": "fp16", "parallel": {"zero": "none"},
              "batch": {"global": SLOW.num_gpus, "micro": 1, "sequence": 1024}}  # fmt: skip
    plain, other = price(SLOW, **fields), price(SLOW, sync=sync, **fields)
    assert other.parts_s["dp"] < less * plain.parts_s["dp"]
    if sync.get("method") == "one-bit-adam":
        assert prediction(RAIL, other).warm_up == WarmUp(500, plain.step_time_s)
        assert any("the first 500 steps are dense" in line for line in step_lines(prediction(RAIL, other)))


def test_late_gradients_still_have_to_pass() -> None:
    fields = {"model": "gpt3-1.3b", "precision": "fp16", "parallel": {"zero": "none"},
              "batch": {"global": SLOW.num_gpus, "micro": 1, "sequence": 1024}}  # fmt: skip
    for staleness in (1, 4, 1000):
        stale = price(SLOW, sync={"method": "bounded-staleness", "staleness": staleness}, **fields)
        assert stale.cost is not None
        assert stale.step_time_s == pytest.approx(float(stale.cost.dp_wire))


def test_groups_that_part_exchange_every_so_many_steps() -> None:
    fields = {"model": "gpt3-1.3b", "precision": "fp16", "batch": {"global": SLOW.num_gpus, "sequence": 1024}}
    together = price(SLOW, parallel={"zero": "hsdp"}, **fields)
    apart = price(SLOW, parallel={"zero": "hsdp"}, sync={"method": "diloco", "every": 100}, **fields)
    kind = "data (replicas)"
    assert apart.comm_bytes[kind]["network"] == pytest.approx(together.comm_bytes[kind]["network"] / 100)
    assert apart.comm_bytes["data"] == together.comm_bytes["data"]
    assert apart.step_time_s < together.step_time_s
    # Each holds its whole state otherwise, and the ranks of one sequence never part.
    alone = price(SLOW, parallel={}, sync={"method": "diloco", "every": 100}, **fields)
    assert alone.memory_bytes["optimizer"] > 4 * apart.memory_bytes["optimizer"]
    halved = price(SLOW, parallel={"cp": 2}, sync={"method": "diloco", "every": 100}, **fields)
    assert "data (context)" in halved.comm_bytes


def test_lists_of_layers_agree_in_other_ways_too() -> None:
    fields = {"model": "resnet-50", "parallel": {"zero": "none"}, "batch": {"global": 2560, "sequence": 1}}
    plain = price(SLOW, **fields)
    assert price(SLOW, sync={"codec": "int8"}, **fields).parts_s["codec"] > 0
    assert price(SLOW, sync={"method": "parameter-server"}, **fields).step_time_s > 2 * plain.step_time_s
    stale = price(SLOW, sync={"method": "bounded-staleness", "staleness": 9}, **fields)
    assert stale.step_time_s < plain.step_time_s
    with pytest.raises(SimulationError, match="algorithm and bucket are not priced"):
        price(SLOW, sync={"bucket": "25MiB"}, **fields)


def test_one_parameter_server_is_a_bottleneck() -> None:
    fields = {"model": "gpt3-1.3b", "precision": "fp16", "parallel": {"zero": "none"},
              "batch": {"global": SLOW.num_gpus, "micro": 1, "sequence": 1024}}  # fmt: skip
    one = price(SLOW, sync={"method": "parameter-server"}, **fields)
    four = price(SLOW, sync={"method": "parameter-server", "servers": 4}, **fields)
    assert one.parts_s["dp"] > 3 * four.parts_s["dp"] > 0


def test_storage_that_is_too_slow_and_checkpoints() -> None:
    starved = price(data={"sample_bytes": 1e9, "storage_rate": "1GB/s"})
    assert starved.storage.enough is False
    assert starved.step_time_s == pytest.approx(512.0, rel=1e-6)
    written = price(checkpoint={"every_steps": 100, "storage_rate": "10GB/s", "asynchronous": False})
    assert written.parts_s["storage"] == pytest.approx(14 * 70.55e9 / 10e9 / 100, rel=0.01)


def test_vision_and_recommendation_models() -> None:
    resnet = price(model="resnet-50", parallel={"zero": "none"}, batch={"global": 512 * 256, "sequence": 1})
    # MLPerf Training v3.0: 8 H100 train ResNet-50 in 13.7 min, about 8,000 images a second and GPU.
    assert resnet.samples_per_s / 512 == pytest.approx(8000, rel=0.3)
    # NVIDIA's MXNet recipe (NGC resnet_mxnet): 90 epochs of 1.281M images in 1.14 h on 8 A100.
    batch = {"global": 8 * 512, "micro": 512, "sequence": 1}
    older = price(load("dgx-a100-superpod"), model="resnet-50", parallel={"zero": "none"}, batch=batch, gpus=8)
    assert older.samples_per_s == pytest.approx(90 * 1.281167e6 / (1.14 * 3600), rel=0.15)
    dlrm = price(model="dlrm", parallel={"zero": "none"}, batch={"global": 65536, "sequence": 1})
    assert dlrm.comm_bytes["tables"]["network"] > 0
    with pytest.raises(SimulationError, match="only data parallelism"):
        price(model="dlrm", parallel={"tp": 8}, batch={"global": 65536, "sequence": 1})


def test_hybrid_sharding_keeps_gathers_inside_the_host() -> None:
    batch = {"global": 512, "micro": 1, "sequence": 4096}
    plain = price(model="llama3-8b", parallel={"zero": "fsdp"}, batch=batch)
    hybrid = price(model="llama3-8b", parallel={"zero": "hsdp"}, batch=batch)
    assert hybrid.comm_bytes["data"]["network"] == 0 < plain.comm_bytes["data"]["network"]
    assert hybrid.comm_bytes["data (replicas)"]["network"] > 0
    assert hybrid.parts_s["fsdp"] < plain.parts_s["fsdp"]


def test_ulysses_exposes_what_a_ring_hides() -> None:
    batch = {"global": 128, "micro": 1, "sequence": 65536}
    ring = price(parallel={"tp": 2, "pp": 4, "cp": 4}, batch=batch)
    ulysses = price(parallel={"tp": 2, "pp": 4, "cp": 4, "context": "ulysses"}, batch=batch)
    assert ulysses.parts_s["cp"] > ring.parts_s["cp"]
    with pytest.raises(DescriptionError, match="whole heads only"):
        price(parallel={"tp": 8, "cp": 16, "context": "ulysses"}, batch={"global": 512, "sequence": 8192})


def test_a_list_of_layers_has_a_timeline() -> None:
    result = price(model="resnet-50", parallel={"zero": "none"}, batch={"global": 512 * 64, "sequence": 1})
    assert step_timeline(result).makespan_s == pytest.approx(result.step_time_s, rel=1e-6)


def test_jobs_that_do_not_fit_the_cluster() -> None:
    with pytest.raises(DescriptionError, match="asks for 1,024 GPUs, but the cluster has 512"):
        price(gpus=1024)
    with pytest.raises(DescriptionError, match="a global batch of 510 does not divide"):
        price(batch={"global": 510, "micro": 1, "sequence": 8192})


def test_copies_of_key_heads_are_said() -> None:
    warned = price(parallel={"tp": 16, "pp": 4}).warnings
    assert [w for w in warned if "KV heads" in w] == [
        "tp 16 copies each of 8 KV heads to 2 ranks: Megatron and torchtitan refuse that"
    ]
    assert not [w for w in price(parallel={"tp": 8, "pp": 4}).warnings if "KV heads" in w]


def test_memory_that_does_not_fit_is_the_limit() -> None:
    batch = {"global": 512, "micro": 1, "sequence": 2048}
    result = price(model="gpt3-175b", precision="fp32", parallel={"tp": 8, "zero": "none"}, batch=batch)
    assert result.limit.what == "memory" and not result.fits
    assert "needs" in result.warnings[0]


def test_decode_across_hosts_pays_for_latency() -> None:
    def token(tp: int):
        fields = {
            "kind": "decode",
            "model": "llama3-70b",
            "parallel": {"tp": tp},
            "batch": {"global": 1},
            "context": 4096,
        }
        return decode_step(RAIL, load_job(fields))

    one, two = token(8), token(16)
    assert one.parts_s["weights"] == pytest.approx(2 * 70.55e9 / 8 / (0.88 * 3.35e12), rel=0.01)
    assert two.parts_s["weights"] == pytest.approx(one.parts_s["weights"] / 2)
    assert two.all_reduce_s > 1.5 * one.all_reduce_s
    assert two.hosts == 2
    with pytest.raises(SimulationError, match="tensor parallelism only"):
        decode_step(
            RAIL, load_job({"kind": "decode", "model": "llama3-70b", "parallel": {"pp": 2}, "batch": {"global": 1}})
        )


def sharded(zero: str, model: str = "llama3-8b", micro: int = 4, **split: Any) -> StepResult:
    """Return a step on 64 H100 with 4 micro-batches a replica."""
    described = {
        "model": model, "gpus": 64, "parallel": {"zero": zero, **split}, "recompute": "full",
        "batch": {"global": 64 * micro, "sequence": 4096}, "software": {"framework": "deepspeed"},
    }  # fmt: skip
    return step(RAIL, load_job(described))


def test_zero_2_scatters_after_every_micro_batch() -> None:
    """DeepSpeed's ZeRO 2 keeps 16-bit gradients where its ZeRO 1 sums in 32."""
    one, two = sharded("1"), sharded("2")
    layer = 2 * float(layer_params(two.case)) if two.case else 0.0  # of which all is there while it is being reduced
    assert two.memory_bytes["gradients"] - layer == pytest.approx(one.memory_bytes["gradients"] / 2 / 64)
    sent = {name: sum(result.comm_bytes["data"].values()) for name, result in (("1", one), ("2", two))}
    # Gradients 4 times and parameters once, against each once.
    assert sent["2"] == pytest.approx(sent["1"] * 5 / 2)
    assert two.parts_s["dp"] > one.parts_s["dp"]
    alone = {zero: sharded(zero, micro=1).step_time_s for zero in ("1", "2")}
    assert alone["1"] == alone["2"], "with one micro-batch it sends what ZeRO 1 sends"


def test_fsdp_gathers_the_experts_that_several_ranks_hold() -> None:
    apart, shared = sharded("fsdp", "mixtral-8x7b", ep=8), sharded("fsdp", "mixtral-8x7b", ep=4)
    for result, holders, ep in ((apart, 8, 8), (shared, 16, 4)):
        sent = sum(result.comm_bytes["data (experts)"].values())
        shape = result.job.model
        assert isinstance(shape, Shape)
        routed = shape.moe_layers * shape.expert_params / ep
        # Gathered twice (they are freed after the forward) and scattered once, 2 bytes each, 4 micro-batches.
        assert sent == pytest.approx((holders - 1) / holders * routed * 6 * 4)
    assert shared.parts_s["fsdp"] > apart.parts_s["fsdp"]
    assert shared.memory_bytes["parameters"] > apart.memory_bytes["parameters"], "two layers of more experts each"
