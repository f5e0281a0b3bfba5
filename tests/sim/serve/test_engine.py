"""Serving: one pass by hand, the steady state, the search, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import syncline
from syncline.describe.plain import plain
from syncline.errors import DescriptionError, UsageError
from syncline.fabric.load import load
from syncline.planning.serve import Serving
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import crowd_of, most_batch, most_rate, steady
from syncline.workload.family.config import shape_from_config
from syncline.workload.job import Job
from syncline.workload.load import Length
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape

FABRIC = load({"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"})


def _job(**more: Any) -> Job:
    load = {"rate": 8, "prompt": 1024, "answer": 256}
    return load_job({"kind": "serve", "model": "llama3-70b", "load": load, **more})


def test_one_token_by_hand() -> None:
    parts = Engine(FABRIC, _job(), Split(8)).decode_parts(1, 1024)
    # 70.55 B, of whose embedding (128,256 x 8,192) one row is read, x 2 bytes over 8 GPUs at 0.88 of 3.35
    # TB/s; 160 all-reduces of 16 KiB by one shot; launches in a graph.
    assert parts["weights"] == pytest.approx((70.55e9 - 128256 * 8192) * 2 / 8 / (0.88 * 3.35e12), rel=0.005)
    # 80 layers: 7 gaps of 1.3 us, 4 products that start in 3 us, 1 ms on the host; in fp8 4 casts of 2 us more.
    assert parts["kernels"] == pytest.approx(80 * (7 * 1.3e-6 + 4 * 3e-6) + 1e-3)
    narrow = Engine(FABRIC, _job(precision="fp8"), Split(8)).decode_parts(1, 1024)
    assert narrow["kernels"] - parts["kernels"] == pytest.approx(80 * 4 * 2e-6)
    assert narrow["weights"] == pytest.approx(
        (parts["weights"] + 128256 * 8192 * 2 / 8 / (0.88 * 3.35e12)) / 2, rel=1e-3
    )
    assert parts["network"] == pytest.approx(160 * 9e-6, rel=0.02)
    assert 7e-3 < sum(parts.values()) < 11e-3  # where the decode job says 13 ms with NCCL's all-reduce


def test_attention_of_a_prefill_by_hand() -> None:
    """80 layers, 64 heads of 128 for keys and 128 for values, causal: 4 prompts of 2,048 tokens."""
    engine = Engine(FABRIC, _job(), Split(8))
    parts = engine.prefill_parts(tokens=4 * 2048, length=2048)
    flops = 2 * 80 * 64 * (128 + 128) / 2 * 2048 * (4 * 2048)  # 2.2e13
    # Over 8 GPUs that sustain 691 TFLOP/s in bf16, of which attention reaches the fitted share.
    assert engine.machine.rate("bf16") == pytest.approx(691e12, rel=1e-3)
    assert parts["cache"] == pytest.approx(flops / 8 / (engine.k.fitted.e_attn * 691e12), rel=2e-3)
    assert engine.prefill_parts(8192, 4096)["cache"] == pytest.approx(2 * parts["cache"])


def test_hosts_apart_cost_latency_and_pipelines_share_the_batch() -> None:
    inside, across = (Engine(FABRIC, _job(), Split(tp)).decode_parts(8, 1024) for tp in (8, 16))
    assert across["network"] > 3 * inside["network"] and across["weights"] < inside["weights"]
    piped, alone = (Engine(FABRIC, _job(), Split(8, pp)) for pp in (2, 1))
    load = _job().load
    assert load is not None
    assert 1.2 * most_rate(alone, load) < most_rate(piped, load) < 3 * most_rate(alone, load)


def test_steady_state_balances_and_grows_with_load() -> None:
    engine, given = Engine(FABRIC, _job(), Split(8)), _job().load
    assert given is not None
    calm, hard = (steady(engine, given, rate) for rate in (1.0, 8.0))
    for at in (
        calm,
        hard,
    ):  # as many leave as arrive: sequences = rate x answer x time of a token in what prefill leaves
        assert at.batch == pytest.approx(at.rate * 256 * at.token_s, rel=0.02)  # Little's law
    assert calm.busy < hard.busy < 1 and calm.first_token_p99_s < hard.first_token_p99_s
    apart = steady(engine, given, 8.0, apart=True)
    assert apart.between_p99_s < hard.between_p99_s and apart.cache_sent_s > 0


@pytest.fixture(scope="module")
def served() -> Serving:
    return syncline.serve(FABRIC, _job(slo={"first_token": "2s", "between_tokens": "150ms"})).result


def test_the_search_keeps_the_limits_and_the_sums_agree(served: Serving) -> None:
    best, data = served.best, plain(served.to_json())["best"]
    assert best.keeps_slo and best.enough
    assert best.num_gpus == min(way.num_gpus for way in (best, *served.others) if way.keeps_slo)
    assert data["tokens_per_s"] == pytest.approx(8 * 256)
    assert best.usd_per_gpu_hour is not None
    cost = best.num_gpus * best.usd_per_gpu_hour / (8 * 256 * 3600) * 1e6
    assert data["usd_per_million_tokens"] == pytest.approx(cost)
    assert 0 <= served.network_usd_share < 1
    text = str(syncline.serve(FABRIC, _job(parallel={"tp": 8})))
    assert "1 replica of tp 8" in text and "no limits given" in text


def test_lengths_are_log_normal() -> None:
    length = Length.model_validate({"mean": 1500, "p99": 8000})
    assert length.p50 < length.mean < length.p99 and length.square > 1
    assert Length.model_validate(700).sigma == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "serve"}, "kind serve needs a load"),
        ({"kind": "decode", "batch": {"global": 1, "sequence": 4096}}, "a decode job has no batch.sequence"),
        ({"batch": {"global": 8}, "slo": {"first_token": "1s"}}, "slo is for kind serve, and the kind is train"),
    ],
)
def test_keys_that_would_be_ignored_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_job({"model": "llama3-8b", **given})
    assert words in caught.value.message


def test_step_and_plan_send_a_serving_job_on() -> None:
    with pytest.raises(UsageError, match="this question is about training"):
        syncline.step(FABRIC, _job())
    with pytest.raises(UsageError, match="an answer of its own"):
        syncline.plan(FABRIC, _job())


def test_experts_are_shared_by_ranks_with_requests_of_their_own() -> None:
    job = _job(model="qwen3-235b-a22b")
    split, spread = (Engine(FABRIC, job, Split(8, spread=s)) for s in (False, True))
    shape = job.model
    assert isinstance(shape, Shape) and shape.moe is not None
    routed = shape.moe_layers * shape.expert_params
    assert spread.weight_bytes == pytest.approx(2 * (shape.params - routed + routed / 8))
    # Four key heads on eight ranks are kept twice; requests of their own are kept once.
    assert spread.cache_bytes(1) == pytest.approx(split.cache_bytes(1) / 2)
    # Only dispatch and combine of every layer with experts; no all-reduce after attention.
    assert spread.decode_parts(64, 1024)["network"] < split.decode_parts(64, 1024)["network"]


def test_a_busy_replica_prefills_short_prompts_together() -> None:
    short = _job(load={"rate": 8, "prompt": 128, "answer": 128})
    engine = Engine(FABRIC, short, Split(8))
    assert short.load is not None
    together = 128 / 8192 * sum(engine.prefill_parts(8192, 128).values())
    assert together < sum(engine.prefill_parts(128, 128).values()) / 2
    batch = most_batch(engine, short.load)
    decoded = 128 * sum(engine.decode_parts(batch, 192).values()) / batch
    assert most_rate(engine, short.load) == pytest.approx(1 / (together + decoded))


def test_decoding_beside_a_prompt_is_work_too() -> None:
    engine = Engine(FABRIC, _job(), Split(8))
    alone, beside = engine.prefill_parts(2048, 2048), engine.mixed_parts(2048, 2048, 256, 1024)
    fast = engine.k.fitted.e_gemm * engine.machine.rate("bf16")
    params = 70.55e9 - 128256 * 8192  # a row of the embedding
    # 2,048 tokens of a prompt are bound by work, so 256 more tokens at 0.8 of the rate add theirs.
    assert beside["weights"] - alone["weights"] == pytest.approx(2 * params * 256 / 8 / (0.8 * fast), rel=0.01)
    assert beside["cache"] - alone["cache"] == pytest.approx(engine.decode_parts(256, 1024)["cache"])
    assert engine.mixed_parts(2048, 2048, 0, 1024) == alone


@pytest.mark.parametrize("model", ["llama3-70b", "qwen3-30b-a3b"])
def test_busy_is_the_rate_over_the_most_and_a_token_takes_longer_the_more_come(model: str) -> None:
    given = _job(model=model, load={"rate": 1, "prompt": {"mean": 300, "p99": 900}, "answer": 300})
    engine, load = Engine(FABRIC, given, Split(4)), given.load
    assert load is not None
    most = most_rate(engine, load)
    found = [steady(engine, load, share * most) for share in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)]
    assert [at.busy for at in found] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 1.1])
    for before, after in itertools.pairwise(found):
        assert after.token_s > before.token_s and after.batch > before.batch
        assert after.first_token_p50_s > before.first_token_p50_s
        assert after.between_p99_s >= before.between_p99_s
    assert found[-1].batch == pytest.approx(most_batch(engine, load)) and not found[-1].keeps_up


def test_few_for_prefill_are_a_longer_queue() -> None:
    engine, given = Engine(FABRIC, _job(), Split(8)), _job().load
    assert given is not None
    ample, scarce = (steady(engine, given, 4.0, apart=True, crowd=crowd) for crowd in (1.0, 2.0))
    assert scarce.first_token_p99_s > ample.first_token_p99_s and scarce.between_p99_s == ample.between_p99_s


def test_one_sequence_reads_the_experts_it_visits_and_no_others() -> None:
    engine = Engine(FABRIC, _job(model="qwen3-30b-a3b"), Split(1))
    alone, many = (engine.decode_parts(batch, 1024)["weights"] for batch in (1, 256))
    assert alone < 4e-3 < many  # 3.3 of 30.5 billion parameters in two bytes each take 2 ms at 3.35 TB/s


def test_recurrent_states_are_read_written_and_kept() -> None:
    shape = shape_from_config({"model_type": "qwen3_5_text"})
    engine = Engine(FABRIC, _job(model=shape.model_dump(exclude_none=True, exclude_defaults=True)), Split(1))
    state = 4 * 24 * (32 * 128 * 128 + 4 * 8192)  # 24 layers, 32 heads, and the convolution's last inputs
    assert engine.state_bytes == state
    short, long = (engine.decode_parts(64, context)["cache"] for context in (1, 2))
    assert short == pytest.approx(64 * 2 * state / engine.machine.hbm_Bps, rel=0.01) and long > short
    assert engine.most_sequences(1000) < 1001 / 1000 * engine.most_sequences(1001)


def test_experts_over_hosts_are_balanced_and_their_exchange_hides_behind_work() -> None:
    """DeepSeek-V3 as SGLang published it: 22,300 tokens a second of eight H100 decoding, 52,300 in prefill."""
    fabric = load({"hosts": 12, "host": "dgx-h100", "network": "rail-optimized NDR"})
    job = _job(model="deepseek-v3", precision="fp8")
    decode = sum(Engine(fabric, job, Split(72, spread=True)).decode_parts(72 * 256, 2050).values())
    prefill = sum(Engine(fabric, job, Split(32, spread=True)).prefill_parts(32 * 16384, 2000).values())
    assert 8 * 256 / decode == pytest.approx(22_300, rel=0.1)
    assert 8 * 16384 / prefill == pytest.approx(52_300, rel=0.2)
    wide, one = (Engine(fabric, job, Split(ranks, spread=True)) for ranks in (16, 8))
    assert wide.weight_bytes > one.weight_bytes / 2  # copies of busy experts take memory


def test_windows_keep_and_read_no_more_than_themselves() -> None:
    """gpt-oss: half of 36 layers see 128 tokens; 8 heads of 64 for keys and as many for values, in 16 bits."""
    engine = Engine(FABRIC, _job(model="gpt-oss-120b"), Split(1))
    assert engine.cache_bytes(4096) == pytest.approx(2 * 2 * 8 * 64 * 18 * (4096 + 128))
    short, long = (engine.decode_parts(64, context)["cache"] for context in (4096, 8192))
    assert long / short == pytest.approx((8192 + 128) / (4096 + 128))
    full = load_job(_plain_job(engine.shape.model_copy(update={"window": 0, "window_share": 0.0})))
    whole = Engine(FABRIC, full, Split(1))
    assert engine.most_sequences(8192) > 1.9 * whole.most_sequences(8192)
    assert engine.prefill_parts(8192, 8192)["cache"] < 0.55 * whole.prefill_parts(8192, 8192)["cache"]


def _plain_job(shape: Shape) -> dict[str, Any]:
    model = shape.model_dump(exclude_none=True, exclude_defaults=True)
    return {"kind": "serve", "model": model, "load": {"rate": 8, "prompt": 1024, "answer": 256}}


def test_weights_are_kept_as_the_checkpoint_says_unless_the_job_does() -> None:
    own = Engine(FABRIC, _job(model="gpt-oss-120b"), Split(1))
    assert own.weight_bytes == pytest.approx(0.5625 * 114.7e9 + 2 * (116.8e9 - 114.7e9), rel=0.01)
    stated = Engine(FABRIC, _job(model="gpt-oss-120b", precision="bf16"), Split(8))
    assert stated.weight_bytes == pytest.approx(2 * 116.8e9 / 8, rel=0.01)
    assert Engine(FABRIC, _job(model="deepseek-v3"), Split(8)).weight_bytes < 1.02 * 671e9 / 8
    # FP8 on a part without such units is widened, so it is not faster where work binds, and half the bytes.
    old = load({"hosts": 1, "host": "dgx-a100", "network": "rail-optimized HDR"})
    narrow, wide = (Engine(old, _job(precision=kind), Split(8)) for kind in ("fp8", "bf16"))
    assert narrow.prefill_parts(8192, 2048)["weights"] == pytest.approx(wide.prefill_parts(8192, 2048)["weights"])
    assert narrow.weight_bytes < 0.55 * wide.weight_bytes


def test_four_bits_are_served_where_products_have_sixteen() -> None:
    one = load({"hosts": 1, "host": "dgx-h100", "network": "rail-optimized NDR"})
    assert (
        syncline.serve(one, _job(precision="fp4", load={"rate": 1, "prompt": 1500, "answer": 300})).result.best.num_gpus
        == 1
    )


def test_a_shared_latent_makes_decoding_work() -> None:
    """DeepSeek: 128 heads multiply one latent of 512 (and 64 for positions) that is read once."""
    job = _job(model="deepseek-v3")
    engine, wide = (Engine(FABRIC, job, Split(tp, spread=True)) for tp in (8, 8))
    work = 2 * 61 * 4096 * 128 * (2 * 512 + 64) / 8 / (engine.k.fitted.e_attn * engine.machine.rate("bf16"))
    assert wide.decode_parts(64, 4096)["cache"] == pytest.approx(64 * work)
    assert 64 * work > 64 * engine.cache_bytes(4096) / engine.machine.hbm_Bps


def test_a_crowd_is_answered_in_turn() -> None:
    engine, given = Engine(FABRIC, _job(), Split(8)), _job().load
    assert given is not None
    few, many, more = (crowd_of(engine, given, users) for users in (8, 64, 1e9))
    assert few is not None and many is not None and more is not None
    assert few.rate < many.rate < more.rate and few.token_s < many.token_s < more.token_s
    assert many.rate * (many.first_token_s + 255 * many.token_s) == pytest.approx(64)
    assert more.users == pytest.approx(most_batch(engine, given))


def test_what_cannot_be_served_is_said_first_with_the_shortest_possible() -> None:
    load = {"rate": 1, "prompt": 1024, "answer": 256}
    answer = syncline.serve(FABRIC, _job(load=load, slo={"first_token": "1ms"}, parallel={"tp": 8}))
    lines = str(answer).splitlines()
    assert answer.exit_status == 1 and lines[1].strip().startswith("CANNOT be served within its limits")
    assert "the limit is 1 ms" in " ".join(lines[2:4]) and answer.result.least_s[0] > 1e-3
    small = syncline.serve(FABRIC, _job(load=load | {"rate": 500}, parallel={"tp": 8}))
    assert small.exit_status == 1 and "the cluster has 32" in str(small).splitlines()[1]
    kept = syncline.serve(FABRIC, _job(load=load, slo={"first_token": "2s"}, parallel={"tp": 8}))
    assert kept.exit_status == 0 and len(str(kept).splitlines()) <= 12
    assert len(str(syncline.serve(FABRIC, _job(load=load, parallel={"tp": 8}), more=True)).splitlines()) > 15


def test_an_engine_at_its_defaults_is_slower_and_less_certain() -> None:
    answers = [
        syncline.serve(FABRIC, _job(engine=engine, parallel={"tp": 8})).result
        for engine in ("vllm", {"name": "vllm", "tuned": False})
    ]
    tuned, plain_one = (answer.token_interval for answer in answers)
    assert answers[1].best.at.between_p50_s > 1.5 * answers[0].best.at.between_p50_s
    assert plain_one.p90[1] / plain_one.p90[0] > tuned.p90[1] / tuned.p90[0]
    assert answers[1].chance <= answers[0].chance <= 1
    with pytest.raises(DescriptionError, match="engine is for kind serve"):
        load_job({"model": "llama3-8b", "batch": {"global": 8}, "engine": "vllm"})


def test_no_token_interval_reaches_below_reading_the_weights() -> None:
    found = syncline.serve(FABRIC, _job(parallel={"tp": 8})).result
    gpu = Engine(FABRIC, found.job, found.best.split).machine.gpu
    shape = found.job.model
    assert isinstance(shape, Shape)
    weights = shape.active_params - shape.embedding_params
    assert 0.9 * weights / 8 / gpu.memory_Bps < found.best.floor_s <= found.token_interval.p90[0]
