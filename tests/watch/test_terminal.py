"""`syncline top`, driven by Textual's pilot."""

from __future__ import annotations

import asyncio

import numpy as np
from tests.watch.scenes import Job, frame, load, table
from textual.widgets import DataTable, Static

from syncline.watch.hub import Hub
from syncline.watch.prediction import Prediction
from syncline.watch.terminal import WatchScreen, bar

LINKS = table(20)
ALERT = {
    "rule": "link.degraded",
    "severity": "critical",
    "place": LINKS.names[3],
    "observed": "at most 40 Gb/s",
    "expected": "100 Gb/s",
    "meaning": "The link runs below its rate.",
    "since_s": 1.7e9 + 999,
    "cost_usd_per_hour": 12.5,
}


def looks(number: int, **changes: object) -> object:
    job = Job(Prediction("p", collectives_s={"all_reduce": 0.05}))
    for k in range(4):
        job.run_step(1000 + k)
    made = frame(number, LINKS, load(LINKS, np.arange(20) / 20), job.view.state(1003.0))
    return type(made)(**{**vars(made), **changes})


def text(app: WatchScreen, name: str) -> str:
    return str(app.query_one(name, Static).render())


def test_the_screen_shows_links_alerts_and_collectives_and_obeys_keys() -> None:
    async def drive() -> None:
        hub = Hub()
        hub.publish(looks(1))  # type: ignore[arg-type]
        app = WatchScreen(hub, "host-00")
        async with app.run_test(size=(150, 40)) as pilot:
            await pilot.pause()
            links = app.query_one("#links", DataTable)
            assert links.row_count == 20
            assert [str(cell) for cell in links.get_row_at(0)[:4]] == [LINKS.names[19], "95%", "100%", "95 Gb/s"]
            assert "Nothing to report" in text(app, "#alerts")
            assert "20 links (0 down)" in text(app, "#summary")
            assert app.query_one("#collectives", DataTable).get_row_at(0)[0] == "all_reduce/1MiB"
            hub.publish(looks(2, alerts=(ALERT,)))  # type: ignore[arg-type]
            app.refresh_frame()
            assert "link.degraded" in text(app, "#alerts")
            assert "$12.50 an hour" in text(app, "#alerts")
            await pilot.press("s", "s", "s")
            await pilot.pause()
            assert app.query_one("#left").border_title == "links by name"
            assert str(links.get_row_at(0)[0]) == LINKS.names[0]
            await pilot.press("slash")
            await pilot.press(*"host-03", "enter")
            assert links.row_count == 2
            await pilot.press("escape")
            assert links.row_count == 20
            await pilot.press("space")
            hub.publish(looks(3))  # type: ignore[arg-type]
            app.refresh_frame()
            assert "link.degraded" in text(app, "#alerts")
            await pilot.press("space")
            assert "Nothing to report" in text(app, "#alerts")

    asyncio.run(drive())


def test_a_bar_says_mean_and_peak_without_colour() -> None:
    assert bar(0.5, 0.75).plain == "█" * 10 + "·····|····"
    assert bar(float("nan"), float("nan")).plain == "·" * 20
