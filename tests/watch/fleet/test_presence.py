"""A fleet keeps its own time: clocks that are off, agents that began anew, hosts that fell silent are told as such."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.watch.scenes import frame, load, table

from syncline.finding import Severity
from syncline.watch.fleet.door import AgentReader
from syncline.watch.fleet.fleet import Fleet
from syncline.watch.fleet.presence import LEARNING_S, STALE_S, HostFrame, Presence
from syncline.watch.incident import Incident
from syncline.watch.links import LinkTable

LINKS = table(2)
WALL_S = 1.8e9
ALERT = Incident("link.loss", Severity.CRITICAL, "x", "", since_s=WALL_S)


def look(seq: int, *, ahead_s: float = 0.0, began_s: float = 5.0, **more: Any) -> HostFrame:
    return HostFrame("gpu-07", WALL_S + seq + ahead_s, LINKS, load(LINKS), seq=seq, began_s=began_s, **more)


def seen(*looks: HostFrame) -> Presence:
    """Return what is known after looks that came a second apart, the first at 0."""
    presence = Presence(["a"], 0.0)
    for at_s, one in enumerate(looks):
        presence.answered("a", [one], float(at_s), WALL_S + at_s)
    return presence


def test_an_agent_whose_looks_are_new_is_live_and_nothing_is_said_of_it() -> None:
    presence = seen(look(0), look(1), look(2))
    assert len(presence.live(2.0)) == 1
    assert (presence.problems(2.0), presence.silent(2.0)) == ({}, {})


def test_an_agent_that_repeats_its_last_look_is_silent() -> None:
    presence = seen(*[look(7, alerts=(ALERT,))] * 7)
    assert len(presence.live(STALE_S - 0.1)) == 1
    assert presence.live(6.0) == []
    found = presence.silent(6.0)["gpu-07"]
    assert (found.rule, found.severity.name, found.since_s) == ("host.silent", "CRITICAL", 0.0)
    assert found.evidence == ("a: the same frame again and again", "1 alert when it last spoke")
    assert presence.problems(6.0) == {"a": "it answers, but with nothing new for 6 s"}


def test_an_agent_that_looked_four_times_a_second_is_silent_after_a_second_and_a_half() -> None:
    presence = Presence(["a"], 0.0)
    for k in range(80):
        presence.answered("a", [look(k)], 0.25 * k, WALL_S + 0.25 * k)
    assert len(presence.live(19.75 + 1.4)) == 1
    assert list(presence.silent(19.75 + 1.6)) == ["gpu-07"]
    presence.answered("a", [look(99)], 23.0, WALL_S)  # a crowded host comes late, and is given more time
    assert len(presence.live(23.0 + 4.9)) == 1


def test_a_host_that_does_not_answer_is_silent_and_one_that_never_did_too() -> None:
    presence = seen(look(1))
    presence.failed("a", "ConnectError: refused")
    assert "refused" in presence.silent(STALE_S)["gpu-07"].evidence[0]
    never = Presence(["http://b"], 0.0)
    assert never.silent(1.0) == {}
    assert never.silent(STALE_S)["http://b"].severity.name == "WARNING"


@pytest.mark.parametrize(("ahead_s", "words"), [(3600.0, "1 h ahead of this one"), (-3600.0, "1 h behind this one")])
def test_a_clock_that_is_off_is_told_and_its_times_are_set_right(ahead_s: float, words: str) -> None:
    presence = seen(look(0, ahead_s=ahead_s, alerts=(replace(ALERT, since_s=WALL_S - 9 + ahead_s),)))
    [one] = presence.live(0.5)
    assert (one.wall_s, one.alerts[0].since_s) == (WALL_S, WALL_S - 9)
    assert words in presence.problems(0.5)["a"].replace("60 min", "1 h")


@pytest.mark.parametrize("again", [look(1), look(400, began_s=99.0)])
def test_an_agent_that_began_anew_is_told_until_it_knows_its_host(again: HostFrame) -> None:
    presence = seen(look(300), again)
    assert "restarted" in presence.problems(2.0)["a"]
    presence.answered("a", [replace(again, seq=again.seq + 90)], LEARNING_S + 1, WALL_S)
    assert "restarted" not in presence.problems(LEARNING_S + 1).get("a", "")


def test_an_answer_without_a_host_says_nothing_and_forgets_nothing() -> None:
    presence = seen(look(300))
    presence.answered("a", [], 1.0, WALL_S)  # an agent that has just begun has no look yet
    assert presence.problems(1.0)["a"].startswith("it answers, but has no host to show yet")
    assert len(presence.live(1.0)) == 1
    presence.answered("a", [look(2, began_s=99.0)], 2.0, WALL_S)
    assert "restarted" in presence.problems(2.0)["a"]


def test_what_was_up_on_a_host_that_fell_silent_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    reader = Answers([look(1, alerts=(ALERT,))])
    fleet = Fleet([reader])
    asyncio.run(fleet.ask(reader))
    first = fleet.tell()
    assert first is not None
    assert [a.rule for a in first.alerts] == ["link.loss"]
    now[0] = STALE_S + 1
    second = fleet.tell()
    assert second is not None
    assert [(a.rule, a.place) for a in second.alerts] == [("host.silent", "gpu-07")]
    assert (second.health["num_hosts"], second.health["num_silent"]) == (0, 1)
    assert fleet._log.update(second.alerts, 0.0, {"gpu-07"}) == []
    reader.frames = [look(2)]
    asyncio.run(fleet.ask(reader))
    third = fleet._joined(fleet._presence.live(now[0]), now[0])
    events = fleet._log.update(third.alerts, 0.0)
    assert {(e.change.value, e.incident.rule) for e in events} == {("cleared", "link.loss"), ("cleared", "host.silent")}


class Answers:
    """A reader that gives what it is told to."""

    name, every_s = "a", 1.0

    def __init__(self, frames: list[HostFrame]) -> None:
        self.frames = frames

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]:
        return self.frames

    async def close(self) -> None: ...


def test_links_of_an_agent_that_began_anew_are_asked_for_again() -> None:
    """Its layout may have the same number and the same length, and other links."""
    names = iter((("old-0", "old-1"), ("new-0", "new-1")))
    reader = AgentReader("http://127.0.0.1:1")

    async def get(path: str, query: dict[str, str] | None = None) -> bytes:
        if path == "/api/layout":
            own = next(names)
            changed = LinkTable(
                own, LINKS.devices, LINKS.directions, LINKS.capacity_Bps, LINKS.rail, LINKS.src, LINKS.dst,
                LINKS.version,
            )  # fmt: skip
            return json.dumps(changed.to_json()).encode()
        return json.dumps(frames.pop(0)).encode()

    frames = [
        frame(seq, LINKS, load(LINKS)).to_json() | {"health": {"host": "h", "began_s": began_s}}
        for seq, began_s in ((9, 1.0), (12, 1.0), (13, 2.0))
    ]
    reader._web.get = get  # type: ignore[method-assign, assignment]
    assert [asyncio.run(reader.read())[0].table.names[0] for _ in range(3)] == ["old-0", "old-0", "new-0"]
