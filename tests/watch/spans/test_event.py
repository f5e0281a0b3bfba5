"""What a job says of itself: its end is no alarm, its checkpoint no hang, and its hang stays up and has a name."""

from __future__ import annotations

from tests.watch.test_rules import WARM, Watch, warm

from syncline.watch.hang import Pending
from syncline.watch.spans.event import JobPhase, PendingEvent, PhaseEvent

TICKS = 4
"""A second."""


def say(watch: Watch, phase: JobPhase, ranks: range = range(4)) -> None:
    watch.job.view.add([PhaseEvent(rank, phase, watch.onset) for rank in ranks])


def later(watch: Watch, seconds: float) -> None:
    """Let time pass in silence, with a few looks at its end."""
    watch.number += round(seconds * TICKS)
    watch.run(12, quiet=True)


def test_a_job_that_said_it_ended_raises_nothing() -> None:
    watch = warm()
    say(watch, JobPhase.END)
    later(watch, 60)
    assert watch.raised("job.stalled") == []


def test_a_hang_stays_up_for_as_long_as_it_lasts() -> None:
    watch = warm()
    watch.run(12 * TICKS, quiet=True)
    assert len(watch.raised("job.stalled")) == 1
    later(watch, 900)  # it used to be forgotten after ten minutes
    assert watch.cleared("job.stalled") == []
    assert [finding.rule for finding in watch.engine.alerts() if finding.rule == "job.stalled"] == ["job.stalled"]


def test_checkpoints_and_evaluations_are_no_hangs_until_they_last_too_long() -> None:
    watch = warm()
    for phase in (JobPhase.CHECKPOINT, JobPhase.EVALUATION):
        say(watch, phase)
        later(watch, 60)
        say(watch, JobPhase.TRAIN)
        watch.run(10 * TICKS)
    assert watch.raised("job.stalled") == []
    say(watch, JobPhase.CHECKPOINT)
    later(watch, 1810)
    (finding,) = (finding for finding in watch.engine.alerts() if finding.rule == "job.stalled")
    assert finding.observed.startswith("checkpoint for")


def test_silence_is_counted_from_the_end_of_a_phase() -> None:
    """The first step after an evaluation takes as long as any: that is no hang yet, and silence after it is one."""
    watch = warm()
    say(watch, JobPhase.EVALUATION)
    later(watch, 60)
    say(watch, JobPhase.TRAIN)
    watch.run(2 * TICKS, quiet=True)
    assert watch.raised("job.stalled") == []
    watch.run(12 * TICKS, quiet=True)
    assert len(watch.raised("job.stalled")) == 1


def test_a_job_after_a_job_begins_anew() -> None:
    watch = warm()
    say(watch, JobPhase.END)
    watch.run(4, quiet=True)
    watch.job.step = 0
    watch.run(WARM)
    assert watch.job.view.state(watch.onset).steps[0].step == 0
    assert watch.raised("job.stalled") == []


def test_ranks_that_did_not_end_with_the_others_are_named() -> None:
    watch = warm()
    say(watch, JobPhase.END, range(3))
    watch.run(12 * TICKS, quiet=True)
    (finding,) = (finding for finding in watch.engine.alerts() if finding.rule == "job.stalled")
    assert any("not rank 3" in text for text in finding.evidence)


def test_a_rank_that_ended_with_an_error_is_named() -> None:
    watch = warm()
    say(watch, JobPhase.FAILED, range(2, 3))
    watch.run(4, quiet=True)
    (finding,) = (finding for finding in watch.engine.alerts() if finding.rule == "job.stalled")
    assert finding.observed == "rank 2 ended with an error"


def pending(rank: int, number: int, name: str = "all_reduce") -> PendingEvent:
    return PendingEvent(rank, name, "default_pg", number, 1 << 20, True)


def test_a_hang_is_named_by_rank_and_collective() -> None:
    found = Pending()
    found.take([pending(rank, 412) for rank in (0, 1, 3)])
    (hang,) = found.hangs(range(4))
    assert hang.ranks == (2,)
    expected = "rank 2 has not entered all-reduce/1MiB (number 412), in which ranks 0, 1, 3 wait"
    assert hang.text == expected
    found.take([pending(2, 410)])
    (hang,) = found.hangs(range(4))
    assert (hang.ranks, hang.text.startswith("rank 2 is still in all-reduce/1MiB (number 410)")) == ((2,), True)
    watch = warm()
    watch.job.view.add([pending(rank, 412) for rank in (0, 1, 3)])
    watch.run(12 * TICKS, quiet=True)
    (finding,) = (finding for finding in watch.engine.alerts() if finding.rule == "job.stalled")
    assert finding.meaning == f"R{expected[1:]}."


def test_ranks_that_all_wait_in_one_collective_point_to_the_network() -> None:
    found = Pending()
    found.take([pending(rank, 7) for rank in range(4)])
    (hang,) = found.hangs(range(4))
    assert "the network between them" in hang.text
    found.take([pending(1, 7, "all_gather")])
    assert "different collectives" in found.hangs(range(4))[0].text
