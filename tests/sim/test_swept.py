"""Sweeps of nccl-tests move the model to a system: measured sizes exactly, others by what they share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.sim.nccl.job import NcclOperation, Scale
from syncline.sim.nccl.measured import Series
from syncline.sim.nccl.predict import chosen_pairs, predict, times_us
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.swept import SIX_SIZES, calibration_of, pick_six, seen_in

SYSTEM = NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network="infiniband")
SIZES = (2.0 ** np.arange(3, 34)).astype(np.float64)


def measured(scale: Scale, op: str = "all_reduce") -> np.ndarray:
    return times_us(NcclOperation(SYSTEM, op, scale=scale), chosen_pairs(SYSTEM, op, SIZES)[0], SIZES)


def moved(seen: tuple, op: str = "all_reduce", hosts: int = 4) -> np.ndarray:
    calibration = calibration_of(seen, op, hosts)
    return predict(SYSTEM, op, SIZES, calibration=calibration).time_us


def test_the_six_sizes() -> None:
    assert pick_six(SIZES).tolist() == list(SIX_SIZES)
    assert pick_six(SIZES[22:]).tolist() == [2**25, 2**28]


def test_a_machine_with_slow_hops_is_learned_from_six_points() -> None:
    truth = measured(Scale(ll_hop=2.5, simple_hop=2.0, efficiency=0.8))
    used = np.isin(SIZES, SIX_SIZES)
    learned = moved(seen_in(SYSTEM, Series("all_reduce", SIZES[used], truth[used])))
    plain = predict(SYSTEM, "all_reduce", SIZES).time_us
    before, after = (np.median(np.abs(t / truth - 1)[~used]) for t in (plain, learned))
    assert before > 0.2 and after < before / 2
    assert learned[used] == pytest.approx(truth[used], rel=0.05)


def test_a_hiccup_is_not_learned() -> None:
    truth = measured(Scale())
    used = np.isin(SIZES, SIX_SIZES)
    noisy = truth[used].copy()
    noisy[1] *= 30
    learned = moved(seen_in(SYSTEM, Series("all_reduce", SIZES[used], noisy)))
    assert learned == pytest.approx(truth, rel=0.05)


def test_one_log_of_all_reduce_moves_other_operations_and_hosts_less() -> None:
    plain = {op: predict(SYSTEM, op, SIZES).time_us for op in ("all_reduce", "all_gather")}
    seen = seen_in(SYSTEM, Series("all_reduce", SIZES[-4:], 1.3 * plain["all_reduce"][-4:]))
    own, other = moved(seen)[-1] / plain["all_reduce"][-1], moved(seen, "all_gather")[-1] / plain["all_gather"][-1]
    more_hosts = moved(seen, "all_reduce", 8)[-1] / plain["all_reduce"][-1]
    assert own == pytest.approx(1.3, rel=0.02)
    assert 1.02 < other < own and 1.02 < more_hosts < own


def test_large_sizes_say_less_of_small_ones() -> None:
    plain = predict(SYSTEM, "all_reduce", SIZES).time_us
    learned = moved(seen_in(SYSTEM, Series("all_reduce", SIZES[-3:], 1.4 * plain[-3:])))
    off = np.log(learned / plain)
    assert off[-1] == pytest.approx(math.log(1.4), rel=0.05) and off[0] < off[-1]


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(SimulationError, match="at least one measured size"):
        seen_in(SYSTEM, Series("all_reduce", np.array([]), np.array([])))
