"""The watch page in a real browser: it opens, moves, filters, shows a link; an alert appears when a link degrades."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, Job, frame, load, table

from syncline.finding import Severity
from syncline.watch.feed import Feed
from syncline.watch.history import History
from syncline.watch.incident import Incident
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.serve.access import Access
from syncline.watch.serve.hub import Hub
from syncline.watch.serve.server import Server, make_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]
LINKS = table(1000, num_rails=4)
PLAN = Prediction(
    "test", step_s=0.25, exposed_s=0.1, collectives_s={"all_reduce": 0.1}, num_gpus=64, usd_per_gpu_hour=2.0
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt install chromium"),
]


class Scene:
    """A job on 1,000 links, ten times as fast as real; `degrade` makes one of them slow."""

    def __init__(self, folder: Path) -> None:
        self.hub, self.history = Hub(), History(folder / "h.db")
        self.engine, self.job = RuleEngine(prediction=PLAN), Job(PLAN)
        self.degrade = self.evil = False
        self.number = 0
        self._stop = threading.Event()
        for _ in range(60):
            self.tick()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def tick(self) -> None:
        self.number += 1
        now = 1000 + self.number * 0.25
        events = self.job.run_step(now)
        of = load(LINKS, 0.45 + 0.1 * np.sin(self.number / 5))
        if self.degrade:
            of.peak_Bps[7], of.rate_Bps[7], of.backlog_bytes[7] = 0.3 * CAPACITY, 0.25 * CAPACITY, 1e5
        made = frame(self.number, LINKS, of, self.job.view.state(now))
        busy = [(e.start_s, e.end_s) for e in events if e.peer >= 0]
        changes = [change.to_json() for change in self.engine.update(made, busy=busy)]
        alerts = self.engine.alerts()
        if self.evil:
            fields = ("rule", "place", "observed", "expected", "meaning", "fix", "host", "reference")
            texts: Any = dict.fromkeys(fields, SCRIPT)
            alerts = (Incident(**texts, severity=Severity.WARNING, evidence=(SCRIPT,), since_s=1.0),)
            job = made.job
            odd = tuple(replace(c, key=SCRIPT, name=SCRIPT) for c in job.collectives)
            made = replace(made, job=replace(job, collectives=odd))
        made = type(made)(**{**vars(made), "alerts": alerts, "health": {"host": "test", "cpu_share": 0.02}})
        self.history.add(made, changes)
        self.hub.publish(made, changes)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.tick()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.history.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Scene, str]]:
    made = Scene(tmp_path)
    access = Access(port=0)
    planned = Prediction(step_s=0.25, link_rate_Bps={LINKS.names[7]: 0.5 * CAPACITY})
    feed = Feed(made.hub, made.history, "test job", "live", planned)
    server = Server(make_app(feed, access), access)
    yield made, f"http://127.0.0.1:{server.start()}/"
    server.close()
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, scene: tuple[Scene, str]) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="dark")  # a profile of its own
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda line: page.complaints.append(line.text) if line.type == "error" else None)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.asked = asked
    page.goto(scene[1])
    page.wait_for_selector("body[data-frames]", timeout=120_000)
    yield page
    assert page.complaints == []
    page.close()


def until(look: Any, seconds: float = 120.0) -> Any:
    """Return what `look` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_the_page_lives(scene: tuple[Scene, str], page: Any) -> None:
    made, url = scene
    # Open and live: frames come in and are drawn, nothing is fetched from elsewhere.
    first = int(page.get_attribute("body", "data-frames"))
    assert until(lambda: int(page.get_attribute("body", "data-frames")) > first + 2)
    assert "live" in page.inner_text("#mode")
    assert "test job" in page.inner_text("#title")
    assert page.inner_text("#link-count") == "1000"
    assert all(address.startswith((url, "data:")) for address in page.asked)
    # A thousand links, but only the rows that fit.
    assert 5 < page.locator("#links .row").count() < 60
    assert "all-reduce/1MiB" in page.inner_text("#collectives")
    # Filter by name and by rail.
    page.keyboard.press("/")
    page.keyboard.type("host-01/nic-3")
    assert until(lambda: page.inner_text("#link-count") == "1 of 1000")
    page.fill("#filter", "rail:2")
    assert until(lambda: page.inner_text("#link-count") == "250 of 1000")
    page.fill("#filter", "host-01/nic-3")
    assert until(lambda: page.inner_text("#link-count") == "1 of 1000")
    # Click a link.
    page.click("#links .row:not([hidden])")
    assert until(lambda: page.inner_text("#link-name").startswith("host-01/nic-3 -> leaf-3"))
    page.fill("#filter", "")
    page.locator("#filter").blur()
    # An alert appears when the link degrades, in the list and in the counts.
    assert "Nothing to report" in page.inner_text("#alerts")
    made.degrade = True
    assert until(lambda: "link.degraded" in page.inner_text("#alerts"))
    assert "host-01/nic-3 -> leaf-3" in page.inner_text("#alerts")
    assert re.search(r"Since \d", page.inner_text("#alerts"))
    assert "Fix:" in page.inner_text("#alerts article")  # in view, without a pointer
    # Acknowledge it, with a reason; then take that back.
    page.click('#alerts button[data-act="acknowledged"]')
    page.fill("#note-reason", "cable is ordered")
    page.click("#note-ok")
    assert until(lambda: "cable is ordered" in page.text_content("#alerts"))
    page.click("#alerts details summary")
    page.click('#alerts button[data-act="none"]')
    assert until(lambda: "cable is ordered" not in page.text_content("#alerts"))
    made.degrade = False
    assert until(lambda: "cleared" in page.inner_text("#alerts"))
    # Keys: pause, next link, theme, time travel and back.
    page.keyboard.press("t")
    assert page.get_attribute("html", "data-theme") == "light"
    page.keyboard.press("j")
    page.keyboard.press(" ")
    assert until(lambda: page.inner_text("#mode") == "paused")
    page.keyboard.press("ArrowLeft")
    assert until(lambda: page.inner_text("#mode").startswith("as of"))
    page.keyboard.press("l")
    assert until(lambda: page.inner_text("#mode").startswith("live"))


SCRIPT = '<img src=x onerror="document.body.dataset.pwned=1">\'"><script>document.body.dataset.pwned=1</script>'


def test_script_in_every_name_stays_text(scene: tuple[Scene, str], page: Any) -> None:
    made, _ = scene
    made.evil = True
    assert until(lambda: "onerror" in page.inner_text("#alerts"))
    assert until(lambda: "onerror" in page.inner_text("#collectives"))
    assert page.get_attribute("body", "data-pwned") is None
    assert page.locator("img").count() == 0
    made.evil = False


@pytest.mark.parametrize("width", [800, 1400, 1920])
def test_nothing_overlaps_or_runs_over(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    time.sleep(0.5)
    boxes = page.evaluate("""() => [...document.querySelectorAll('main > section')].filter(s => s.offsetParent)
        .map(s => { const b = s.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })""")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for k, a in enumerate(boxes):
        for b in boxes[k + 1 :]:
            assert a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 1 or b[3] <= a[1] + 1


def test_the_canvases_are_painted(page: Any) -> None:
    page.click("#links .row:not([hidden])")
    for canvas in ("fabric", "series", "steps", "tail", "heat"):
        shown = page.locator(f"#{canvas}")
        assert until(lambda shown=shown: len(shown.screenshot()) > 1500), canvas
