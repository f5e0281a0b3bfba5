"""Replays and fleets: other origins of the same frames."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, frame, load, table

from syncline.describe.plain import plain
from syncline.errors import WatchError
from syncline.finding import Severity
from syncline.timeline import Source, SourceKind, SpanKind, TimelineBuilder, save
from syncline.timeline import load as load_timeline
from syncline.watch.feed import Feed, played
from syncline.watch.fleet.door import AgentReader
from syncline.watch.fleet.fleet import Fleet
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident
from syncline.watch.picture import picture
from syncline.watch.replay import Replay
from syncline.watch.serve.access import Access
from syncline.watch.serve.hub import Hub
from syncline.watch.serve.server import Server, make_app


def simulated(seconds: float = 1e-3) -> Any:
    builder = TimelineBuilder(Source(SourceKind.SIMULATED_FLOW, "syncline flow", "0.1"))
    link = builder.link("host-00/nic-0 -> leaf-00", 50e9)
    builder.link("leaf-00 -> host-01/nic-0", 50e9)
    for step in range(4):
        start = step * seconds / 4
        for rank in range(2):
            builder.add_span(rank, start, start + seconds / 8, SpanKind.COMPUTE, "forward", step=step)
            builder.add_span(
                rank,
                start + seconds / 8,
                start + seconds / 4,
                SpanKind.COLLECTIVE,
                "AllReduce",
                step=step,
                size_bytes=1 << 20,
            )
        builder.add_samples(
            link=link, start_s=start + seconds / 8, end_s=start + seconds / 4, size_bytes=50e9 * seconds / 8
        )
    return builder.build()


@pytest.mark.parametrize("seconds", [1e-3, 40.0])
def test_a_timeline_is_played_with_its_own_rates(seconds: float) -> None:
    replay = Replay(simulated(seconds), num_frames=80)
    frames = list(replay.frames())
    assert len(frames) == 80
    use = np.array([f.load.rate_Bps[0] / 50e9 for f in frames])
    assert use.mean() == pytest.approx(0.5, rel=0.02)
    assert use.max() == pytest.approx(1.0, rel=0.02)
    assert frames[-1].load.rate_Bps[1] == 0.0
    assert frames[-1].job.collectives[0].p50_s == pytest.approx(seconds / 8, rel=0.01)
    assert [s.step for s in frames[-1].job.steps] == [0, 1, 2]
    assert replay.history is not None
    assert replay.history.extent()["num_frames"] == 80
    assert "simulated-flow" in replay.title
    replay.close()


def falling(seconds: float) -> Any:
    """Return a run whose link works at its rate, and at a third of it in the last third of the time."""
    builder = TimelineBuilder(Source(SourceKind.SIMULATED_FLOW, "syncline flow", "0.1"))
    link = builder.link("host-00/nic-0 -> leaf-00", 50e9)
    builder.add_span(0, 0.0, seconds, SpanKind.SEND, "ring", size_bytes=int(10e9 * seconds), peer=1)
    for k in range(300):
        share = 0.7 if k < 200 else 0.2
        start, end = k * seconds / 300, (k + 1) * seconds / 300
        builder.add_samples(link=link, start_s=start, end_s=end, size_bytes=share * 50e9 * seconds / 300)
    return builder.build()


def test_rules_see_a_replay_at_its_own_pace() -> None:
    short, long = Replay(falling(9e-3)), Replay(falling(60.0))
    frames = list(short.frames())
    assert not any(f.alerts for f in frames)  # nothing lasts half a second in a run of 9 ms
    assert frames[-1].wall_s - short.origin_s == pytest.approx(short.slow * 9e-3, abs=1e-4)
    assert frames[-1].job.pairs_Bps[0, 1] == pytest.approx(10e9, rel=0.01)
    raised = [f for f in long.frames() if f.alerts]
    assert raised[0].alerts[0].rule == "link.degraded"
    since_s = raised[0].alerts[0].since_s
    assert since_s is not None and 40 < since_s - long.origin_s < 48
    assert short.pace()["slow"] > 1000
    assert long.pace() == {"origin_s": long.origin_s, "slow": 1.0, "length_s": pytest.approx(60.0)}
    short.close()
    long.close()


def test_a_replay_reads_files_and_refuses_what_cannot_be_played(tmp_path: Path) -> None:
    save(simulated(), tmp_path / "run.timeline")
    replay = Replay(load_timeline(tmp_path / "run.timeline"), speed=1000.0, title="run.timeline")
    stop = threading.Event()
    player = threading.Thread(target=played(replay.play, hold=True), args=(stop,))
    player.start()
    end = time.monotonic() + 120
    while (replay.hub.frame is None or replay.hub.frame.seq < 240) and time.monotonic() < end:
        time.sleep(0.01)
    stop.set()
    player.join()
    assert replay.hub.frame is not None
    assert replay.hub.frame.seq == 240
    replay.close()
    with pytest.raises(WatchError, match="the speed must be positive, got 0"):
        Replay(simulated(), speed=0)
    with pytest.raises(WatchError, match="the timeline is empty"):
        Replay(TimelineBuilder(Source(SourceKind.LAB, "x")).build())


class Fixed:
    """A reader of one frame, or of nothing when it is broken."""

    every_s = 1.0

    def __init__(self, name: str, one: Frame | None) -> None:
        self.name, self.one = name, one

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]:
        if self.one is None:
            raise OSError("no route to host")
        one = self.one
        return [HostFrame(str(one.health["host"]), one.wall_s, one.table, one.load, one.job, one.alerts)]

    async def close(self) -> None: ...


async def read_once(reader: AgentReader) -> list[HostFrame]:
    try:
        return await reader.read()
    finally:
        await reader.close()


def ask(fleet: Fleet) -> None:
    async def every() -> None:
        for reader in fleet._readers:
            await fleet.ask(reader)
            await reader.close()

    asyncio.run(every())


def host_frame(k: int, num_links: int = 4) -> Frame:
    links = table(num_links)
    renamed = type(links)(
        **{
            **{f: getattr(links, f) for f in links.__dataclass_fields__},
            "names": tuple(f"h{k} {n}" for n in links.names),
        }
    )
    alert = Incident("link.loss", Severity.CRITICAL, renamed.names[0], "", since_s=1.0)
    one = frame(5, renamed, load(renamed, k / 100, drops_per_s=np.arange(num_links)))
    return type(one)(**{**vars(one), "alerts": (alert,) if k == 2 else (), "health": {"host": f"h{k}"}})


def test_a_fleet_puts_hosts_side_by_side_and_goes_on_without_the_dead() -> None:
    readers = [*(Fixed(f"http://h{k}", host_frame(k)) for k in range(64)), Fixed("http://dead", None)]
    fleet = Fleet(readers)
    ask(fleet)
    joined = fleet.tell()
    assert joined is not None
    assert len(joined.table) == 256
    at = joined.table.index["h63 " + table(4).names[0]]
    assert joined.load.rate_Bps[at] == pytest.approx(0.63 * CAPACITY, rel=1e-5)
    assert joined.load.drops_per_s[at + 3] == 3.0
    assert [a.host for a in joined.alerts] == ["h2"]
    assert "no route to host" in joined.health["problems"]["http://dead"]
    again = fleet.tell()
    assert again is not None
    assert again.table is joined.table


def test_a_fleet_that_nobody_answers_says_why() -> None:
    fleet = Fleet([Fixed("http://dead", None)])
    assert fleet.tell() is None  # nobody was asked yet
    ask(fleet)
    said = fleet.tell()
    assert said is not None
    assert len(said.table) == 0
    assert said.health["problems"] == {"http://dead": "OSError: no route to host"}


def test_a_fleet_reads_a_real_agent_over_http() -> None:
    hub = Hub()
    hub.publish(host_frame(7))
    access = Access(port=0, token="sixteen-characters")
    server = Server(make_app(Feed(hub), access), access)
    url = f"http://127.0.0.1:{server.start()}"
    try:
        (one,) = asyncio.run(read_once(AgentReader(url, "sixteen-characters")))
        assert one.table.names[0].startswith("h7 ")
        assert len(one.load) == 4
        with pytest.raises(OSError, match="401"):
            asyncio.run(read_once(AgentReader(url, "another-sixteen-chars")))
    finally:
        server.close()
    with pytest.raises(WatchError, match="is not an address"):
        AgentReader("file:///etc/passwd")


def test_the_picture_puts_hosts_below_their_leaves() -> None:
    drawn = plain(picture(table(8)))
    level = {d["name"]: d["level"] for d in drawn["devices"]}
    assert level == {"host-00": 0, "host-01": 0, "host-02": 0, "host-03": 0, "leaf-0": 1, "leaf-1": 1}
    assert all(0 < d["x"] < 1 for d in drawn["devices"])


def test_switches_of_a_site_are_not_parts_of_a_host() -> None:
    one = table(2)
    columns = {f: getattr(one, f) for f in one.__dataclass_fields__}
    ends = {"src": ("west/host-00/nic-0", "west/leaf-00"), "dst": ("west/leaf-00", "west/spine-01 #44")}
    drawn = plain(picture(type(one)(**{**columns, **ends})))
    assert {d["name"]: d["level"] for d in drawn["devices"]} == {
        "west/host-00": 0,
        "west/leaf-00": 1,
        "west/spine-01": 2,
    }
