from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.sim.nccl.measured import OPS, bus_factor
from syncline.sim.nccl.predict import predict
from syncline.sim.nccl.system import NcclSystem

H100 = NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network="infiniband")
SIZES = [8, 2**15, 2**20, 2**26, 2**33]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("hosts", [1, 2, 3, 16, 100])
def test_every_operation_has_a_time_and_an_interval(op: str, hosts: int) -> None:
    prediction = predict(replace(H100, num_hosts=hosts), op, SIZES)
    assert np.all(prediction.time_us > 0)
    assert np.all(prediction.low_us < prediction.time_us)
    assert np.all(prediction.time_us < prediction.high_us)
    assert np.all(prediction.fastest_us <= prediction.time_us * 1.0001)


@pytest.mark.parametrize("gpu", ["v100", "a100", "h20", "b300", "l40s", "mi300x"])
def test_every_generation_is_modelled(gpu: str) -> None:
    system = NcclSystem(gpu=gpu, num_hosts=2, gpus_per_host=8, num_nics=8, nic_rate_Bps=25e9, network="roce")
    assert np.all(np.isfinite(predict(system, "all_reduce", SIZES).time_us))


def test_unverified_is_said() -> None:
    assert any(
        "broadcast on up to 64 hosts was never measured" in text for text in predict(H100, "broadcast", SIZES).basis
    )
    assert any(
        "RCCL" in t
        for t in predict(NcclSystem(gpu="mi300x", num_hosts=1, gpus_per_host=8), "all_reduce", SIZES).unverified
    )
    assert any("read the interval" in t for t in predict(replace(H100, num_hosts=128), "all_reduce", SIZES).unverified)


def test_the_interval_is_wider_beyond_64_hosts_and_narrower_when_calibrated() -> None:
    near, far = (predict(replace(H100, num_hosts=hosts), "all_reduce", [2**30]) for hosts in (64, 65))
    assert far.high_us[0] / far.time_us[0] > near.high_us[0] / near.time_us[0]


def test_rows_have_si_units() -> None:
    row = predict(H100, "all_reduce", [2**30]).rows()[0]
    assert row.busbw_Bps == pytest.approx(2**30 / row.time_s * bus_factor("all_reduce", 32))
    assert 200e9 < row.busbw_Bps < 420e9


def test_bus_factors() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_to_all", 8) == 0.875
    assert bus_factor("send_recv", 8) == 1


def test_bad_questions() -> None:
    with pytest.raises(SimulationError, match="positive numbers of bytes"):
        predict(H100, "all_reduce", [0])
    with pytest.raises(SimulationError, match='"scan" is not an operation'):
        predict(H100, "scan", [8])
    with pytest.raises(SimulationError, match="at least two ranks"):
        predict(NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=1), "all_reduce", [8])
    with pytest.raises(SimulationError, match="need NICs"):
        NcclSystem(gpu="h100", num_hosts=2, gpus_per_host=8)
    with pytest.raises(SimulationError, match='GPU "rtx" is not in the NCCL model'):
        predict(NcclSystem(gpu="rtx", num_hosts=1, gpus_per_host=8), "all_reduce", [8])


@pytest.mark.parametrize(
    ("hosts", "network", "judged"), [(2, "unknown", True), (1, "unknown", False), (2, "roce", False)]
)
def test_constants_of_an_unknown_network_are_judgement_only_where_data_crosses_it(
    hosts: int, network: str, judged: bool
) -> None:
    system = NcclSystem(gpu="h100", num_hosts=hosts, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network=network)
    prediction = predict(system, "all_reduce", [2**20])
    assert (f"constants of {system.net.title} are judgement" in prediction.unverified) is judged
