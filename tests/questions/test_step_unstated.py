"""A step says what a job leaves unsaid where that decides whether it fits, or a good part of its time."""

from __future__ import annotations

import pytest

import syncline
from syncline.questions.step import StepPrediction

CLUSTER = {"hosts": 1024, "host": "8 x H100", "network": "rail-optimized 400GbE"}
LLAMA: dict[str, object] = {
    "model": "llama3-405b", "batch": {"global": 2048, "micro": 1, "sequence": 8192}, "recompute": "none",
    "parallel": {"tp": 8, "pp": 16},
}  # fmt: skip


@pytest.fixture(scope="module")
def fabric() -> syncline.Fabric:
    return syncline.load(CLUSTER)


def asked(fabric: syncline.Fabric, **changes: object) -> StepPrediction:
    answer = syncline.step(fabric, LLAMA | changes)
    assert isinstance(answer, StepPrediction)
    return answer


def test_a_plain_description_of_llama_is_told_how_it_ran(fabric: syncline.Fabric) -> None:
    answer = asked(fabric)
    better = answer.unstated
    assert not answer.fits and better is not None
    assert {each.key: each.value for each in better.keys} == {
        "virtual": "8",
        "schedule": "interleaved",
        "fused_act": "true",
        "allocator": "expandable",
    }
    assert better.memory_bytes < 79.1 * 2**30 and better.mfu == pytest.approx(0.43, abs=0.02)
    assert "not stated  virtual stages (taken: 1)" in str(answer)
    said = asked(fabric, parallel={"tp": 8, "pp": 16, "virtual": 8, "schedule": "interleaved"}, fused_act=True,
                 allocator="expandable")  # fmt: skip
    assert said.unstated is None and said.fits
    assert said.step_time_s == pytest.approx(better.step_time_s)
    assert said.memory_bytes.total == pytest.approx(better.memory_bytes)


def test_what_a_job_states_is_kept(fabric: syncline.Fabric) -> None:
    plain = asked(fabric, parallel={"tp": 8, "pp": 16, "schedule": "1f1b"}).unstated
    assert plain is not None and [(each.key, each.value) for each in plain.keys] == [("fused_act", "true")]
    assert asked(fabric, parallel={"tp": 8, "pp": 16, "schedule": "1f1b"}, fused_act=False).unstated is None


def test_a_job_without_a_pipeline_that_fits_is_told_nothing(fabric: syncline.Fabric) -> None:
    small = asked(fabric, model="llama3-8b", batch={"global": 8192, "sequence": 4096}, parallel={"zero": "3"})
    assert small.fits and small.unstated is None


def test_chunks_that_a_model_cannot_have_are_passed_over(fabric: syncline.Fabric) -> None:
    batch = {"global": 8192, "sequence": 4096}
    answer = asked(fabric, model="deepseek-v3", parallel={"pp": 16, "ep": 64}, batch=batch)
    keys = answer.unstated.keys if answer.unstated else ()
    assert ("virtual", "4") not in {(each.key, each.value) for each in keys}  # 64 chunks of 61 layers
