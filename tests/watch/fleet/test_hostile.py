"""Strangers: agents, spans and sources that lie, drip, redirect or break; the rest goes on, and says what happened."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.watch.scenes import frame, load, table

from syncline.timeline import SpanKind
from syncline.watch.agent import MAX_FAILURES, Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.fleet.door import AgentReader, ForeignFrame, ForeignLayout
from syncline.watch.fleet.fleet import Fleet
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.foreign import admit
from syncline.watch.frame import Frame
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.rules.rule import Context, RuleVerdict
from syncline.watch.spans.event import SpanEvent, event_of

LINKS = table(4)
GOOD = {"rank": 3, "kind": "collective", "name": "all_reduce", "start_s": 1.0, "end_s": 1.5, "size_bytes": 64,
        "step": 7}  # fmt: skip


def body(**changes: Any) -> dict[str, Any]:
    one = frame(5, LINKS, load(LINKS, 0.25)).to_json()
    return {**one, "health": {"host": "h"}, **changes}


# Spans


@pytest.mark.parametrize(
    "strange",
    [{"start_s": 10**400}, {"end_s": 10**400}, {"end_s": 1e300}, {"start_s": float("nan")}, {"rank": 10**400},
     {"rank": True}, {"name": None}, {"kind": "x" * 1000}, {"end_s": time.monotonic() + 1e6}],
)  # fmt: skip
def test_a_span_that_cannot_be_is_refused(strange: dict[str, object]) -> None:
    assert event_of({**GOOD, **strange}, Clock()) is None


def test_a_span_keeps_what_is_good_of_it() -> None:
    event = event_of({**GOOD, "size_bytes": 10**400, "step": "x", "peer": -5, "newer": {"a": 1}}, Clock())
    assert isinstance(event, SpanEvent)
    assert (event.size_bytes, event.step, event.peer, event.kind) == (0, -1, -1, SpanKind.COLLECTIVE)


class Broken:
    """A source of spans that fails in a way nobody thought of, now and then."""

    name, problem, num_bad = "broken", "", 0

    def __init__(self) -> None:
        self.is_broken = True

    def read(self) -> list[SpanEvent]:
        if self.is_broken:
            raise ZeroDivisionError("surprise")
        return []

    def close(self) -> None: ...


class Future(Broken):
    """A source whose clock is a century ahead."""

    def read(self) -> list[SpanEvent]:
        late = time.monotonic() + 3e9
        return [SpanEvent(0, SpanKind.COLLECTIVE, "x", late - 1, late)]


def test_a_source_that_breaks_is_a_problem_on_the_page_and_nothing_else() -> None:
    broken = Broken()
    agent = Agent(AgentOptions("h"), spans=[broken])  # type: ignore[list-item]
    assert agent.tick().health["problems"] == {"broken": "failed: ZeroDivisionError: surprise"}
    broken.is_broken = False
    assert agent.tick().health["problems"] == {}


def test_a_span_of_the_future_does_not_hide_the_present() -> None:
    future = Future()
    agent = Agent(AgentOptions("h"), spans=[future])  # type: ignore[list-item]
    assert agent.tick().job.last_span_s == float("-inf")
    assert future.num_bad == 1


class BadRule:
    id, raise_after_s, clear_after_s = "bad.rule", None, None

    def look(self, context: Context) -> RuleVerdict:
        raise IndexError("off by one")


def test_a_rule_that_breaks_does_not_silence_the_others() -> None:
    from syncline.watch.rules.link_rules import LinkErrors

    engine = RuleEngine(rules=(BadRule(), LinkErrors()))  # type: ignore[arg-type]
    bad = load(LINKS, 0.5)
    bad.errors_per_s[2] = 9.0
    engine.update(frame(1, LINKS, bad))
    assert [finding.rule for finding in engine.alerts()] == ["link.errors"]
    assert engine.problems == {"bad.rule": "failed: IndexError: off by one"}


def test_an_agent_that_fails_at_every_look_ends_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, looks = Agent(AgentOptions("h", tick_s=0.001)), []

    def tick() -> Frame:
        looks.append(1)
        raise RuntimeError("for good")

    monkeypatch.setattr(agent, "tick", tick)
    with pytest.raises(RuntimeError, match="for good"):
        agent.run(threading.Event())
    assert len(looks) == MAX_FAILURES


# Frames


def test_a_newer_agent_is_understood() -> None:
    newer = body(novelty={"a": [1, 2]}, alerts=[{"rule": "r", "place": "p", "severity": "apocalyptic", "new": 1}])
    found = admit(ForeignFrame, json.dumps(newer))
    assert found.alerts[0].severity.label == "unknown"
    assert found.load().rate_Bps.tolist() == pytest.approx(list(0.25 * LINKS.capacity_Bps))


@pytest.mark.parametrize(
    ("strange", "words"),
    [
        ({"health": None}, "health"),
        ({"wall_s": 10**400}, "wall_s"),
        ({"num_links": -1}, "num_links"),
        ({"job": {"collectives": [{"key": 3}]}}, "job.collectives"),
        ({"alerts": "none"}, "alerts"),
        ({"alerts": [{"rule": 1}]}, "alerts.0"),
    ],
)
def test_a_strange_frame_is_one_sentence(strange: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        admit(ForeignFrame, json.dumps(body(**strange)))


def test_columns_that_do_not_fit_are_refused() -> None:
    for strange, words in (
        ({"rate_Bps": "!!"}, "not a column"), ({"rate_Bps": "AAAA"}, "not a column|has"),
        ({"num_links": 9}, "for 9 links"),
        ({"drops_per_s": [[77, 1.0]]}, "link 77 of 4"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            admit(ForeignFrame, json.dumps(body(**strange))).load()


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=12), st.sampled_from(sorted(body())))  # fmt: skip
def test_any_value_anywhere_is_a_frame_or_one_sentence(value: object, field: str) -> None:
    try:
        admit(ForeignFrame, json.dumps(body(**{field: value}))).load()
    except ValueError as error:
        assert len(str(error)) < 400


# A fleet


class Strangers:
    """Small servers on loopback, each with its own manners."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def serve(self, answer: Callable[[asyncio.StreamWriter, str], Awaitable[None]]) -> str:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    self.asked.append(head)
                    await answer(writer, head.split()[1].decode())
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        made = asyncio.run_coroutine_threadsafe(asyncio.start_server(one, "127.0.0.1", 0), self._loop).result(30)
        self._servers.append(made)
        return f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.05)  # until transports are closed


def plain(text: str, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{more}\r\n{text}".encode()


async def good(writer: asyncio.StreamWriter, path: str) -> None:
    new = {"seq": time.monotonic_ns(), "wall_s": time.time()}
    writer.write(plain(json.dumps(body(**new) if path.startswith("/api/frame") else LINKS.to_json())))
    await writer.drain()


def says(data: bytes) -> Callable[[asyncio.StreamWriter, str], Awaitable[None]]:
    async def answer(writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


async def drip(writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.fixture
def strangers() -> Any:
    made = Strangers()
    yield made
    made.close()


def test_of_64_agents_ten_misbehave_and_54_stay_live(strangers: Strangers) -> None:
    deep = "[" * 100_000
    bad = [
        strangers.serve(answer)
        for answer in (
            drip, drip, says(b"\x00\x01 what\r\n\r\n"), says(plain(deep)), says(plain(json.dumps(body(health=None)))),
            says(plain("{}")), says(plain("", "302 Found", "Location: http://127.0.0.1:1/\r\n")), says(b""),
            says(plain(json.dumps(body(num_links=10**9)))), says(plain("boom", "500 Oh no")),
        )
    ]  # fmt: skip
    fine = strangers.serve(good)
    readers = [*(AgentReader(f"{fine}?{k}".partition("?")[0]) for k in range(54)), *map(AgentReader, bad)]
    for k, reader in enumerate(readers):
        reader.name = f"agent {k}"
    fleet = Fleet(readers, every_s=0.2, deadline_s=4.0)
    stop = threading.Event()
    running = threading.Thread(target=fleet.run, args=(stop,))
    running.start()
    try:
        until = time.monotonic() + 240
        found: Frame | None = None
        while time.monotonic() < until:
            found = fleet.hub.frame
            if found is not None and found.health["num_hosts"] == 54 and len(found.health["problems"]) == 10:
                break
            time.sleep(0.05)
    finally:
        stop.set()
        running.join(120)
    assert not running.is_alive()
    assert found is not None
    assert (found.health["num_hosts"], len(found.table)) == (54, 54 * 4)
    problems = found.health["problems"]
    assert len(problems) == 10
    assert sum("no whole answer within 4 s" in text for text in problems.values()) == 2
    assert "points elsewhere" in problems["agent 60"]


async def read_once(reader: AgentReader) -> None:
    try:
        await reader.read()
    finally:
        await reader.close()


def test_a_token_is_not_carried_to_where_a_redirect_points(strangers: Strangers) -> None:
    other = Strangers()
    try:
        thief = other.serve(good)
        sly = strangers.serve(says(plain("", "307 Temporary Redirect", f"Location: {thief}/api/frame\r\n")))
        reader = AgentReader(sly, "a-token-of-many-characters")
        with pytest.raises(OSError, match="307: it points elsewhere"):
            asyncio.run(read_once(reader))
        assert b"a-token-of-many-characters" in strangers.asked[0]
        assert other.asked == []
    finally:
        other.close()


def test_layouts_whose_columns_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        admit(ForeignLayout, json.dumps({**LINKS.to_json(), "rail": [0]})).table()


def test_one_agent_with_absurd_values_owns_neither_the_headline_nor_the_job() -> None:
    """Its figures are within every bound of a record, and no host of the fleet confirms them."""
    alert = {"rule": "link.loss", "place": "x", "severity": "critical"}
    step = {"step": 41, "end_s": 1.0, "step_s": 0.5, "compute_s": 0.4, "exposed_s": 0.1, "num_ranks": 8}
    rank = {"rank": 3, "lateness_s": 0.01, "compute_s": 0.4}
    honest = body(health={"host": "h", "usd_per_day": 4800.0}, alerts=[{**alert, "cost_usd_per_day": 480.0}],
                  job={"steps": [step], "ranks": [rank]})  # fmt: skip
    lie = body(
        health={"host": "liar", "usd_per_day": 1e15}, alerts=[{**alert, "cost_usd_per_day": 10_000.0}],
        job={"steps": [{**step, "step_s": 1e11}, {**step, "step": (1 << 53) - 1}],
             "ranks": [{**rank, "lateness_s": 1e11}, {**rank, "rank": 7, "lateness_s": 0.02}]},
    )  # fmt: skip
    frames = [
        HostFrame(one.health.host, one.wall_s, LINKS, one.load(), one.job.state(),
                  tuple(each.incident() for each in one.alerts), usd_per_day=one.health.usd_per_day)
        for one in (admit(ForeignFrame, json.dumps(each)) for each in (honest, lie, honest, honest))
    ]  # fmt: skip
    joined = Fleet([])._joined(frames, 1.0)
    assert [step.step_s for step in joined.job.steps] == [0.5]
    assert [(rank.rank, rank.lateness_s) for rank in joined.job.ranks] == [(3, 0.01), (7, 0.02)]
    assert joined.alerts[0].host != "liar"
    assert max(alert.cost_usd_per_day or 0.0 for alert in joined.alerts) == 480.0
    [refused] = [alert for alert in joined.alerts if alert.host == "liar"]
    assert "which these hosts cannot" in refused.evidence[-1]
