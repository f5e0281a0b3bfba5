"""Ranks over loopback: who failed, with its own words, and nothing left running."""

from __future__ import annotations

import sys
import time

import pytest

from syncline.bench.local import run_ranks

SECOND_FAILS = "import os, sys; sys.exit('no network' if os.environ['RANK'] == '1' else 0)"
RANKS = "import os, sys; sys.exit(os.environ['RANK'] + ' of ' + os.environ['WORLD_SIZE'])"


def test_the_rank_that_failed_is_named_with_its_last_words() -> None:
    failed = run_ranks([sys.executable, "-c", SECOND_FAILS], 2)
    assert failed is not None
    assert (failed.rank, failed.exit_code, failed.stderr) == (1, 1, "no network")


def test_rank_0_explains_most_where_all_fail() -> None:
    failed = run_ranks([sys.executable, "-c", RANKS], 3)
    assert failed is not None and (failed.rank, failed.stderr) == (0, "0 of 3")


def test_all_that_end_well_are_no_failure() -> None:
    assert run_ranks([sys.executable, "-c", ""], 2) is None


def test_ranks_that_take_too_long_are_ended() -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        run_ranks([sys.executable, "-c", "import time; time.sleep(120)"], 2, timeout_s=0.5)
    assert time.monotonic() - began_s < 60
