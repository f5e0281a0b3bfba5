"""An all-to-all whose pairs exchange different amounts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import syncline
from syncline.cli.shell import app
from syncline.errors import DescriptionError, SimulationError
from syncline.questions.simulate import alltoallv

CLUSTER = "h100-64-rail"


def equal(num: int, size: float) -> NDArray[np.float64]:
    return np.full((num, num), size)


def test_equal_sizes_are_an_all_to_all() -> None:
    uneven = alltoallv(CLUSTER, equal(16, 1 << 20)).rows[0]
    even = syncline.simulate(CLUSTER, "alltoall", "16MiB", ranks=16).rows[0]
    assert (uneven.size_bytes, uneven.time_s, uneven.low_s) == (even.size_bytes, even.time_s, even.low_s)
    assert uneven.bound_s == pytest.approx(even.bound_s)


def test_the_busiest_host_sets_the_time() -> None:
    """Each of 8 ranks of the first host sends 4 MiB to each of 8 of the second: its exit is 400 GB/s."""
    sent = equal(16, 1 << 20)
    sent[:8, 8:] *= 4
    found, even = alltoallv(CLUSTER, sent).rows[0], alltoallv(CLUSTER, equal(16, 1 << 20)).rows[0]
    assert found.bound_s is not None and found.bound_s == pytest.approx(8 * 8 * (4 << 20) / 400e9)
    assert found.low_s is not None and found.bound_s <= found.low_s <= found.time_s < 4.1 * even.time_s
    assert found.best is not None and found.bound_s <= found.best.time_s <= found.time_s


def test_what_stays_in_a_host_does_not_cross_its_ports() -> None:
    sent = np.zeros((16, 16))
    sent[:8, :8] = 8 << 20
    inside, across = alltoallv(CLUSTER, sent).rows[0], alltoallv(CLUSTER, np.roll(sent, 8, axis=1)).rows[0]
    assert across.time_s > 3 * inside.time_s


def test_the_order_of_ranks_inside_hosts_does_not_matter() -> None:
    sent = np.random.default_rng(1).integers(0, 4 << 20, (16, 16)).astype(float)
    order = np.array([3, 1, 0, 2, 7, 6, 5, 4, *range(8, 16)])
    a, b = (alltoallv(CLUSTER, matrix).rows[0] for matrix in (sent, sent[np.ix_(order, order)]))
    assert a.time_s == pytest.approx(b.time_s) and a.bound_s == pytest.approx(b.bound_s)


def test_a_file_of_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sent.csv"
    file.write_text("# experts\n0,1MiB\n2097152,0\n")
    assert app.run(["simulate", "alltoallv", str(file), "--cluster", CLUSTER]) == 0
    assert "alltoallv on h100-64-rail: 2 ranks" in capsys.readouterr().out
    wrong = {"0,1\n1\n": "2 rows of 1 or 2 sizes", "0,x\n1,0\n": '"x" is no size', "0,-1\n1,0\n": "row 1"}
    for text, problem in wrong.items():
        file.write_text(text)
        assert app.run(["simulate", "alltoallv", str(file), "--cluster", CLUSTER]) == 2
        assert problem in capsys.readouterr().err


def test_nothing_to_send_is_refused() -> None:
    with pytest.raises(SimulationError, match="no rank sends anything"):
        alltoallv(CLUSTER, np.eye(4))
    with pytest.raises(DescriptionError, match="square"):
        alltoallv(CLUSTER, [[1, 2]])
