"""Verdicts from beats alone: who is dead, hung or cut off, and who is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from syncline.errors import SynchronizationError
from syncline.runtime.alive.heartbeat import BUSY, CLOSED, WAITING, Beat, read_beat
from syncline.runtime.alive.verdict import BeatRecord, Member, judge
from syncline.runtime.sync.settings import Settings

MEMBERS = tuple(Member(rank, host) for rank, host in enumerate("abcd"))
USUAL = Beat(0, step=5, mark=7, step_s=0.1, ages=dict.fromkeys(range(4), 0.1))
WAITS = replace(USUAL, state=WAITING, still_s=7.0)


def by_rank(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def peers(**changes: BeatRecord) -> dict[int, BeatRecord]:
    heard = {rank: BeatRecord(replace(USUAL, rank=rank), 0.2) for rank in (1, 2, 3)}
    return {**heard, **{int(name[1:]): value for name, value in changes.items()}}


def verdict(own: Beat = USUAL, **changes: BeatRecord) -> tuple[str, int, str] | None:
    found = judge(own, peers(**changes), MEMBERS, 10.0)
    return None if found is None else (found.kind, found.rank, found.text)


def test_a_stop_of_two_seconds_is_no_alarm() -> None:
    assert verdict() is None
    late = BeatRecord(replace(USUAL, rank=2, still_s=2.5), 2.5)
    assert verdict(replace(WAITS, still_s=4.5), r2=late) is None


def test_a_process_that_its_host_disowns_is_dead_at_once() -> None:
    gone = BeatRecord(replace(USUAL, rank=2), 0.6, refused=2)
    assert verdict(r2=gone) == ("dead", 2, "rank 2 on c is dead: its host answers that the process is gone.")


def test_silence_that_all_hear_is_death() -> None:
    deaf = replace(USUAL, ages=by_rank(0.1, 0.1, 7.0, 0.1))
    others = {f"r{rank}": BeatRecord(replace(deaf, rank=rank), 0.2) for rank in (1, 3)}
    found = verdict(USUAL, r2=BeatRecord(replace(USUAL, rank=2), 6.5), **others)
    assert found == ("silent", 2, "rank 2 on c is lost: no rank has heard from it for 6.5 s.")


def test_silence_that_only_some_hear_is_the_network() -> None:
    found = verdict(r2=BeatRecord(replace(USUAL, rank=2), 6.5))
    assert found is not None
    assert found[:2] == ("network", 2)
    assert found[2] == (
        "ranks do not agree who is silent: rank 0 on a has not heard rank 2 on c for 6.5 s, and rank 1 on b has."
    )


def test_a_rank_that_hears_nobody_is_itself_cut_off() -> None:
    silent = {f"r{rank}": BeatRecord(replace(USUAL, rank=rank), 7.0) for rank in (1, 2, 3)}
    assert verdict(USUAL, **silent) == (
        "network",
        0,
        "rank 0 on a hears from no other rank: it is cut off, or all others are gone.",
    )


def test_alive_without_progress_while_others_wait_is_hung() -> None:
    stuck = replace(USUAL, rank=2, still_s=7.0, at="train.py line 41 (load)")
    assert verdict(WAITS, r2=BeatRecord(stuck, 0.2)) == (
        "hung", 2, "rank 2 on c hangs: alive, but without progress for 7.0 s at step 5, in train.py line 41 (load)."
    )  # fmt: skip
    assert verdict(WAITS, r2=BeatRecord(replace(stuck, state=BUSY), 0.2)) is None
    assert verdict(replace(WAITS, step_s=30.0), r2=BeatRecord(replace(stuck, step_s=30.0), 0.2),
                   r1=BeatRecord(replace(USUAL, rank=1, step_s=30.0), 0.2)) is None  # fmt: skip


def test_all_waiting_is_the_network_and_who_left_is_named() -> None:
    everyone = {f"r{rank}": BeatRecord(replace(WAITS, rank=rank), 0.2) for rank in (1, 2, 3)}
    found = verdict(WAITS, **everyone)
    assert found is not None
    assert found[2] == "every rank waits and nothing arrives: no progress for 7.0 s."
    left = BeatRecord(replace(USUAL, rank=1, step=3, state=CLOSED), 20.0)
    assert verdict(WAITS, r1=left) == ("closed", 1, "rank 1 on b has ended at step 3 while rank 0 still waits for it.")
    done = BeatRecord(replace(USUAL, rank=1, step=5, state=CLOSED), 20.0)
    late = judge(WAITS, peers(r1=done), MEMBERS, 10.0, patience_s=300.0)
    assert late is not None and not late.is_final, "it has made that step: what it sent may still arrive"
    assert late.text == "rank 1 on b has ended, and what it sent has not arrived: no progress for 7.0 s."


def test_half_the_limit_is_still_hearing() -> None:
    silent = BeatRecord(replace(USUAL, rank=2), 6.5)
    for age_s, kind in ((3.0, "network"), (3.1, "silent")):  # of a limit of 6 s
        others = {f"r{r}": BeatRecord(replace(USUAL, rank=r, ages=by_rank(0.1, 0.1, age_s, 0.1)), 0.2) for r in (1, 3)}
        found = verdict(r2=silent, **others)
        assert found is not None and found[0] == kind


def test_standing_still_is_judged_after_the_limit_and_not_at_it() -> None:
    for still_s, kind in ((6.0, None), (6.1, "hung")):
        found = verdict(WAITS, r2=BeatRecord(replace(USUAL, rank=2, still_s=still_s), 0.2))
        assert (found and found[0]) == kind
    assert verdict(replace(WAITS, still_s=6.0), r2=BeatRecord(replace(USUAL, rank=2, still_s=9.0), 0.2)) is None


def test_nothing_is_judged_in_the_first_step_or_while_a_rank_is_busy() -> None:
    fresh = {f"r{r}": BeatRecord(replace(WAITS, rank=r, step_s=0.0), 0.2) for r in (1, 2, 3)}
    assert verdict(replace(WAITS, step_s=0.0), **fresh) is None
    left = BeatRecord(replace(USUAL, rank=1, state=CLOSED), 20.0)
    assert verdict(WAITS, r1=left, r2=BeatRecord(replace(USUAL, rank=2, state=BUSY), 0.2)) is None


def test_one_refusal_is_not_death() -> None:
    assert BeatRecord(USUAL, 0.2).refused == 0
    assert verdict(r2=BeatRecord(replace(USUAL, rank=2), 0.6, refused=1)) is None


def test_what_one_rank_found_all_say() -> None:
    told = BeatRecord(replace(USUAL, rank=3, cause="rank 1 on b is dead."), 0.2)
    assert verdict(r3=told) == ("reported", 3, "rank 1 on b is dead.")
    named = BeatRecord(replace(told.beat, lost=1), 0.2)
    assert verdict(r3=named) == ("reported", 1, "rank 1 on b is dead.")


def test_beats_of_others_are_not_read() -> None:
    data = USUAL.to_bytes("x")
    assert read_beat(data, "x", 4) == USUAL
    assert read_beat(data, "y", 4) is None
    assert read_beat(data, "x", 3) is None, "it tells of a rank that there is not"
    for bad in (b"", b"[]", b"{}", b"\xff\xff", data[:-9], b'{"token": "x"}'):
        assert read_beat(bad, "x", 4) is None


def test_watch_s_is_checked() -> None:
    with pytest.raises(SynchronizationError, match=r"watch_s=0\.5 must be 0, or from 1 to 3600 seconds"):
        Settings(watch_s=0.5)
