"""The demo: every fault of its timetable is named, with its fix, and nothing is raised between them."""

from __future__ import annotations

from syncline.watch.demonstration import invented as demo
from syncline.watch.demonstration.invented import ROUND_S, TICK_S, TIMETABLE, Demo

RULES = {"rate": "link.degraded", "loss": "link.loss", "straggler": "job.straggler", "down": "link.down",
         "bursts": "link.microburst"}  # fmt: skip


def test_a_round_of_the_demo() -> None:
    made = Demo()
    try:
        assert made.hub.frame is not None
        assert made.hub.frame.alerts == ()
        named: dict[str, set[str]] = {}
        made._begin_s = made._now_s
        for _ in range(round(ROUND_S / TICK_S)):
            frame = made.look()
            at_s = made._now_s - made._begin_s
            quiet = all(not fault.begin_s <= at_s < fault.end_s + 9 for fault in TIMETABLE)
            if quiet:  # what is said of the job looks back ten seconds and more
                assert [a for a in frame.alerts if a.rule.startswith(("link.", "rail."))] == [], at_s
            for alert in frame.alerts:
                named.setdefault(alert.rule, set()).add(alert.place)
                assert alert.fix
        for fault in TIMETABLE:
            place = f"rank {fault.place}" if fault.kind == "straggler" else fault.place
            assert place in named.get(RULES[fault.kind], set()), fault
        (collective,) = made.hub.frame.job.collectives
        assert collective.predicted_s == demo.COMM_S
    finally:
        made.close()
