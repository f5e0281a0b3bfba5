"""DDP on four real processes over gloo: every way of using it, each against what plain DDP or arithmetic says."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.ddp_cases import CODECS, OWING, do_all
from tests.distributed.ranks import run_ranks

EXACT = 1e-6
# Relative error of the mean of four gradients: of the first step, where no error is owed yet.
WORST = {
    "fp32": EXACT,
    "bf16": 4e-3,
    "fp16": 5e-4,
    "int8": 2e-2,
    "int8:block=64": 2e-2,
    "int4": 0.3,
}


@cache
def everything() -> list[dict[str, Any]] | Exception:
    """Return what every case found; or what went wrong, which is not tried again for each test."""
    try:
        return run_ranks(4, do_all)
    except Exception as error:
        return error


def found(case: str) -> list[Any]:
    results = everything()
    if isinstance(results, Exception):
        raise results
    return [result[case] for result in results]


@pytest.mark.parametrize("codec", CODECS)
def test_replicas_get_the_same_bits_near_the_mean_in_every_codec_and_bucket(codec: str) -> None:
    for result in found("averages"):
        assert result[codec]["same"]
        assert result[codec]["errors"][0] <= WORST.get(codec, 1.0)
        assert (result[codec]["first"], result[codec]["buckets"]) == (1, 2), "DDP rebuilds its buckets once"


@pytest.mark.parametrize("codec", OWING)
def test_what_came_and_what_is_owed_is_the_sum_of_the_true_means(codec: str) -> None:
    assert all(result[codec] < EXACT for result in found("conserves"))


def test_unused_parameters_are_as_in_plain_ddp() -> None:
    for result in found("unused"):
        assert result["names"] == result["plain"]
        assert result["close"] < 1e-5


def test_uneven_inputs_join() -> None:
    for result in found("join"):
        assert result["distance"]["fp32"] < EXACT
        assert result["distance"]["int8"] < 1e-4
        assert 0 < result["distance"]["sign"] < 1e-2


def test_accumulation_with_no_sync() -> None:
    assert all(error < EXACT for error in found("accumulation"))


def test_half_precision_gradients_keep_their_type() -> None:
    for result in found("half_precision"):
        assert result["torch.bfloat16"] == {"dtypes": ["torch.bfloat16", "torch.float32"], "same": True}
        assert result["torch.float16"] == {"dtypes": ["torch.float16", "torch.float32"], "same": True}


def test_an_overflow_on_one_rank_skips_the_step_on_all_and_residuals_follow_the_scale() -> None:
    for result in found("scaler"):
        assert result["changed"] == [True, True, False, True]
        assert result["scales"] == [1024.0, 1024.0, 512.0, 512.0]
        assert result["skipped"] == [False, False, True, False]
        assert result["same"]
        before, skipped = result["owing"][1:3]
        assert before == pytest.approx(skipped, rel=1e-5), "a skipped step leaves what is owed alone"


def test_torch_compile_inside_and_outside() -> None:
    for result in found("compiled"):
        assert max(result["outside"], result["inside"]) < EXACT
        assert (result["outside steps"], result["inside steps"]) == (3, 3)


def test_several_models_in_one_process() -> None:
    assert all(result["0"] < EXACT and result["1"] < 2e-2 for result in found("several_models"))


def test_groups_that_are_part_of_the_world() -> None:
    assert found("part_of_the_world") == [{"error": pytest.approx(0, abs=EXACT), "ranks": 2}] * 4


def test_resume_on_another_number_of_ranks_pays_what_was_owed() -> None:
    four = found("resume_elsewhere")
    assert all(result == {"error": pytest.approx(0, abs=EXACT), "step": 3} for result in four[:2])


def test_a_ranks_own_state_comes_back_and_only_to_it() -> None:
    for rank, result in enumerate(found("local_state")):
        assert result["same"]
        assert result["factors"] == ["0.weight", "2.weight", "4.weight"]
        other = (rank + 1) % 4
        assert result["refused"].startswith(f"the saved state belongs to rank {other} of 4; this is rank {rank} of 4.")


def test_turned_off_the_model_is_plain_ddp() -> None:
    assert all(r == {"error": pytest.approx(0, abs=EXACT), "steps": 2} for r in found("turned_off"))


def test_a_step_is_reported_on_one_line_and_as_a_timeline() -> None:
    for rank, result in enumerate(found("measured")):
        report, elements = result["report"], result["elements"]
        assert report["rank"] == rank
        assert report["dense_bytes"] == pytest.approx(4 * elements * 1.5, abs=4)
        payload = elements * (1 + 4 / 256) * 1.5
        assert report["wire_bytes"] == pytest.approx(payload, rel=0.1)
        assert report["step_s"] == pytest.approx(report["compute_s"] + report["exposed_s"])
        assert report["bound_s"] == max(report["compute_s"], report["wire_bytes"] / report["rate_Bps"])
        times, sent = r"step 2: .* = compute .* \+ exposed .*; ", r"sent [23]\d.* KiB \(int8, (3\.\d|4\.0)x fewer\) "
        form = times + sent + r"at [\d.]+ [KMG]b/s; \d+% of the bound"
        assert re.fullmatch(form, result["line"])
        assert result["saved"]
        assert {"forward and backward", "encode shard", "shards on the wire", "sums on the wire"} <= set(
            result["spans"]
        )
        assert result["source"].startswith("runtime: syncline runtime")


def test_what_runs_is_the_program_that_is_priced_span_by_span() -> None:
    for result in found("as_programmed"):
        for way, said in result.items():
            assert said["alone"] == [], way
            assert said["pairs"] > 20 and "round" in said["keys"]
            # Headers of messages come on top.
            assert 0 < said["more_bytes"] < 0.1


def test_collectives_of_the_backend_give_the_same_bits() -> None:
    assert found("collectives") == [{"equal": True}] * 4


def test_two_levels_are_dense_inside_a_host_and_compressed_across() -> None:
    for result in found("two_levels"):
        assert all(codec["same"] for codec in result.values())
        assert result["fp32"]["error"] < EXACT
        assert result["int8"]["error"] < 2e-2
        assert all(result[codec]["conserved"] < EXACT for codec in ("fp32", "sign", "powersgd:rank=2"))
        assert result["int8"]["across"] < 0.3 * result["fp32"]["across"]
        assert result["int8"]["inside"] == result["fp32"]["inside"]


def test_warm_up_sends_int8_first_says_until_when_and_goes_on_after_a_resume() -> None:
    codecs = ["int8", "int8", "sign", "sign", "int8", "sign"]
    said = ["sign from step 2", "sign from step 2", "", ""]
    assert found("warm_up") == [{"codecs": codecs, "said": said}] * 4


def test_buckets_are_as_large_as_pieces_unless_the_user_has_chosen() -> None:
    for result in found("fitted"):
        assert all(way["same"] and way["back"] for way in result.values())
        assert result["given"]["buckets"] == 1
        assert result["left out"]["buckets"] >= 5, "a layer is a MiB"


def test_an_optimizer_that_updates_under_the_exchange_gives_the_same_weights() -> None:
    for result in found("early"):
        skipping, auto, unused = result.pop("refused")
        assert 'nan="skip" (and a scaler) does not work with optimizer=' in skipping
        assert 'codec="auto" does not measure optimizer' in auto
        assert "find_unused_parameters and static_graph of DDP do not work with optimizer=" in unused
        for way in result.values():
            assert way["equal"] and way["same"]
            assert way["none"] == [0] * 4
            assert way["updates"][-1] == way["buckets"] == 2, "each bucket by itself"
