"""`syncline watch --terminal`, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
from tests.watch.scenes import Job, frame, load, table
from textual.widgets import DataTable, Static

from syncline.finding import Severity
from syncline.watch.incident import Incident
from syncline.watch.prediction import Prediction
from syncline.watch.serve.hub import Hub
from syncline.watch.terminal import WatchScreen, bar

LINKS = table(20)
ALERT = Incident(
    "link.degraded", Severity.CRITICAL, LINKS.names[3], "at most 40 Gb/s", "100 Gb/s",
    meaning="The link runs below its rate.", since_s=1.7e9 + 999, cost_usd_per_day=24 * 12.5,
)  # fmt: skip


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
            shown = [str(cell) for cell in links.get_row_at(0)[:6]]
            assert shown == [LINKS.names[19], "95 Gb/s", "95%", "", "", "100%"]
            assert "Nothing to report" in text(app, "#alerts")
            assert "20 links (0 down)" in text(app, "#summary")
            assert app.query_one("#collectives", DataTable).get_row_at(0)[0] == "all-reduce/1MiB"
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


def test_at_80_by_24_everything_that_matters_is_in_view() -> None:
    async def drive() -> None:
        hub = Hub()
        hub.publish(looks(1, alerts=(replace(ALERT, fix="Reseat the cable."),)))  # type: ignore[arg-type]
        app = WatchScreen(hub, "host-00")
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            app.refresh_frame()
            await pilot.pause()
            links = app.query_one("#links", DataTable)
            assert [str(column.label) for column in links.columns.values()] == ["link", "rate", "use", "drops", "alert"]
            assert links.virtual_size.width <= 80
            first = [str(cell) for cell in links.get_row_at(0)]
            assert first == [LINKS.names[3], "15 Gb/s", "15%", "", "degraded"]  # in trouble, though not the busiest
            assert links.region.height >= 8
            assert app.query_one("#alerts").region.height >= 5
            assert "Fix: Reseat the cable." in text(app, "#alerts")
            assert not app.query_one("#collectives").display
            await pilot.press("c")
            assert app.query_one("#collectives").region.height > 10
            await pilot.press("c", "a")
            assert app.query_one("#alerts").region.height > 10
            await pilot.press("a")
            assert links.region.height >= 8

    asyncio.run(drive())


def test_a_bar_says_mean_and_peak_without_colour() -> None:
    assert bar(0.5, 0.75).plain == "█" * 10 + "·····|····"
    assert bar(float("nan"), float("nan")).plain == "·" * 20
