"""The watch page beside a real link: the lab degrades it, the agent notices, the browser shows it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.test_watch import CHROMIUM, FLAGS, until
from tests.lab.traffic import Transfer

from syncline.errors import LabError, WatchError
from syncline.fabric import load
from syncline.lab import Lab
from syncline.watch.agent import Agent, AgentOptions
from syncline.watch.feed import Feed
from syncline.watch.serve.access import Access
from syncline.watch.serve.server import Server, make_app
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import SourceTree

FLAT = Path(__file__).parent.parent.parent / "examples" / "lab-flat.yaml"
TICK_S = 0.1
"""A rule compares with the link's own past, which is so many looks long: at this pace five seconds."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt install chromium"),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts at 50 Mb/s, one of which sends to the other as fast as it can."""
    try:
        with Lab(load(FLAT), hosts=2, scale=0.05) as made:
            Transfer(made, made.host_names[0], made.host_names[1], seconds=120)
            yield made
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    """An agent that reads the sender's interface, as `syncline watch --netns` does."""
    host = lab.host_names[0]
    answer, files = lab._open_link.ask("namespaces", host=lab.blueprint.host(host))
    place = f"/proc/self/fd/{files[answer['kinds'].index('net')]}"
    try:
        source = NetdevSource(SourceTree(), pattern=r"eth\d+", netns=place, prefix=host)
    except WatchError as error:
        pytest.skip(f"the lab's namespaces cannot be read: {error}")
    made = Agent(AgentOptions("lab", TICK_S), [source])
    stop = threading.Event()
    looking = threading.Thread(target=made.run, args=(stop,))
    looking.start()
    yield made
    stop.set()
    looking.join()
    made.close()
    for file in files:
        os.close(file)


def test_an_alert_appears_when_the_lab_degrades_a_link(lab: Lab, agent: Agent) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    access = Access(port=0)
    server = Server(make_app(Feed(agent.hub, None, "lab", "live"), access), access)
    url = f"http://127.0.0.1:{server.start()}/"
    try:
        with api.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(url)
            page.wait_for_selector("body[data-frames]", timeout=120_000)
            assert until(lambda: agent.hub.frame is not None and agent.hub.frame.seq > 60, 60.0)
            assert until(lambda: "link.degraded" not in page.inner_text("#alerts"))
            place = f"{lab.host_names[0]}/eth0 tx"
            lab.fault(f"{lab.host_names[0]}:eth0 rate 30% for 60s")
            assert until(lambda: "link.degraded" in page.inner_text("#alerts"), 20.0)
            assert place in page.inner_text("#alerts")
            browser.close()
    finally:
        server.close()
