"""Sites of different size: proved, and each pair of sites exchanges 2V/D whatever their sizes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from syncline.errors import ScheduleError
from syncline.schedule import verify
from syncline.schedule.family.uneven import uneven


@pytest.mark.parametrize(
    ("hosts", "per_host"), [((2, 3, 4), 8), ((1, 2), 1), ((4, 4, 1), 2), ((3, 5), 4), ((2, 2), 3), ((1, 1, 1, 3), 2)]
)
def test_every_rank_gets_the_sum_and_each_pair_of_sites_two_parts_of_it(hosts: tuple[int, ...], per_host: int) -> None:
    schedule = uneven(hosts, per_host)
    verify(schedule)
    site = np.repeat(np.arange(len(hosts)), [size * per_host for size in hosts])
    sent = np.zeros((len(hosts), len(hosts)), dtype=np.int64)
    (strand,) = schedule.strands
    for moves in strand.steps():
        np.add.at(sent, (site[moves.src], site[moves.dst]), 1)
    between = ~np.eye(len(hosts), dtype=bool)
    assert {Fraction(int(n), strand.num_chunks) for n in sent[between]} == {Fraction(2, len(hosts))}


@pytest.mark.parametrize(("hosts", "per_host"), [((3,), 8), ((0, 2), 8), ((2, 3), 0), ((61, 59, 53), 8)])
def test_what_is_no_sites_is_refused(hosts: tuple[int, ...], per_host: int) -> None:
    with pytest.raises(ScheduleError):
        uneven(hosts, per_host)
