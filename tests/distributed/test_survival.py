"""What plain DDP and FSDP2 take, syncline takes; who is late is waited for, and who is lost is named."""

from __future__ import annotations

import multiprocessing
import socket
from functools import cache, partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.distributed.cases import survival_cases as cases
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.ranks import PRELOAD, rank_process, run_ranks, take

from syncline.host.ports import meeting_port

WORST = {"plain": 1e-6, "fp32": 1e-6, "int8": 2e-2, "sign": 2.0, "auto": 2e-2}


@cache
def taken() -> list[dict[str, Any]]:
    return run_ranks(2, cases.whatever_ddp_takes)


@pytest.mark.parametrize("codec", ["plain", "int8", "sign", "auto"])
def test_sparse_gradients_are_averaged_as_ddp_does(codec: str) -> None:
    for got in taken():
        assert got["sparse"][codec][0] < 1e-6, "no codec touches what is sparse"
        assert max(got["sparse"][codec][1:]) < WORST[codec]


@pytest.mark.parametrize("codec", cases.COMPLEX)
def test_complex_gradients_travel_as_pairs(codec: str) -> None:
    for got in taken():
        if got["complex"] is None:
            pytest.skip(f"plain DDP of torch {torch.__version__} takes no complex parameters on gloo")
        assert got["complex"][codec][0] < WORST[codec]


@pytest.mark.parametrize("views", ["False", "True"])
def test_on_off_and_on_again_at_any_step(views: str) -> None:
    for got in taken():
        errors = got["again"][views]["errors"]
        assert all(1e-6 < error < 2e-2 for error in (*errors[:3], *errors[6:])), "in the codec"
        assert max(errors[3:6]) < 1e-6, "turned off it is plain DDP"
        second = got["again"][views]["second"]
        assert second["text"].startswith("this model is synchronised already.")


def test_two_models_and_batch_norm() -> None:
    for got in taken():
        assert max(got["two"]) < 2e-2
        assert got["norm"] < 1e-6


def test_what_cannot_be_is_named() -> None:
    for got in taken():
        option, hook = got["refused"]
        assert option.startswith('there is no option "chek_every".\n  Did you mean "check_every"? Options: ')
        assert hook.startswith('this DDP model has the communication hook "other_hook" already.')


def test_plain_is_ddp_to_the_bit() -> None:
    for got in taken():
        found = got["plain is DDP"]
        assert found["equal"]
        assert found["why"] == "plain: as given"
        assert found["step"] == 120


def test_unequal_backwards_are_an_error_at_once_and_the_right_rank_is_named() -> None:
    for got in run_ranks(3, cases.unequal):
        assert got["class"] in ("AgreementError", "LostRankError"), got
        assert "rank 1 has called backward more often than rank" in got["text"]
        assert "at step 3 after" in got["text"]


def test_a_ranks_own_exception_reaches_the_others_with_its_text() -> None:
    *others, own = run_ranks(3, cases.own_exception)
    assert own["class"] == "ValueError"
    for got in others:
        assert got["class"] == "LostRankError"
        text = f"rank 2 on {socket.gethostname()} failed: ValueError: shard 17 of the data is not there"
        assert text in got["text"]


def test_a_rank_that_is_late_is_named_and_waited_for() -> None:
    results = run_ranks(3, cases.late)
    assert [got["class"] for got in results] == [""] * 3
    for got in (results[0], results[2]):
        (line,) = [line for line in got["log"] if "hangs" in line][:1]
        assert f"rank 1 on {socket.gethostname()} hangs: alive, but without progress" in line
        assert f"Waiting for it, up to {cases.SMALL['timeout_s']:.0f} s in all." in line


@cache
def sharded() -> list[dict[str, Any]]:
    return run_ranks(4, cases.sharded_root)


@pytest.mark.parametrize(
    ("case", "worst"),
    [
        ("bare", 2e-2), ("half", 3e-2), ("offload", 2e-2), ("2-D fp32", 1e-6), ("2-D int8", 2e-2),
        ("2-D powersgd:rank=4", 1.5), ("2-D again", 2e-2), ("skip", 2e-2),
    ],
)  # fmt: skip
@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_fsdp2_in_every_form(case: str, worst: float) -> None:
    for got in sharded():
        assert max(got[case]["errors"]) < worst
        assert got[case]["off"] < (3e-2 if case == "half" else 1e-6), "turned off it is FSDP2's own"
        if "int8" in case:
            assert got[case]["sent"] < 0.3 * got[case]["dense"]


@pytest.mark.parametrize("how", ["killed", "hung"])
@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_fsdp2_names_the_rank_that_is_lost(how: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    port = meeting_port()
    started = [rank_process(context, partial(cases.fsdp_loss, how=how), rank, port) for rank in range(4)]
    try:
        for rank in range(3):
            got = take(started[rank][1], rank, 120.0)
            assert got["class"] == "LostRankError", got
            assert f"rank 3 on {socket.gethostname()} " in got["text"]
    finally:
        for process, _ in started:
            process.join(5)
            if process.is_alive():
                process.kill()


def test_replicas_of_a_site_are_equal_after_every_step_of_diloco() -> None:
    for got in run_ranks(4, cases.sites):
        assert got["equal"] == 40
        assert got["landed"] > 1, "averages did arrive"
