"""A history read back: frames as they were, its incidents, what links reached, and the report of one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from tests.watch.scenes import CAPACITY, frame, load, table

from syncline.errors import WatchError
from syncline.finding import Severity
from syncline.questions.within.incident import IncidentReport, watch_report
from syncline.watch.frame import Frame
from syncline.watch.history import History
from syncline.watch.incident import Incident, IncidentLog
from syncline.watch.recorded import Recorded, is_history
from syncline.watch.setup import _expected as expected

LINKS = table(4)
SLOW = Incident(
    "link.degraded", Severity.CRITICAL, LINKS.names[1], "at most 40 Gb/s", "100 Gb/s", ("40 % of before",),
    "It is slow.", "Replace it.", cost_usd_per_day=24.0 * 3600,
    effects=(Incident("job.slower-than-before", Severity.WARNING, "step", "2 s"),),
)  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Frame]]:
    """Return a history of a minute: one incident that opened twice, and one that is still open."""
    path, log, frames = tmp_path_factory.mktemp("kept") / "watch.db", IncidentLog(), []
    with closing(History(path)) as history:
        for k in range(240):
            share = 0.4 if 80 <= k < 100 or 120 <= k < 140 else 1.0
            made = frame(k, LINKS, load(LINKS, 0.4, peak_Bps=[CAPACITY, share * CAPACITY, CAPACITY, CAPACITY]))
            up = [replace(SLOW, since_s=made.wall_s)] if share < 1 else []
            if k >= 200:
                up.append(Incident("link.down", Severity.CRITICAL, LINKS.names[3], "down", "up"))
            made = replace(made, alerts=tuple(up))
            history.add(made, [event.to_json() for event in log.update(up, made.wall_s)])
            frames.append(made)
    return path, frames


def test_frames_come_back_as_they_were(kept: tuple[Path, list[Frame]]) -> None:
    with closing(Recorded(kept[0])) as recorded:
        found = list(recorded.frames())
    assert len(found) == len(kept[1])
    assert found[90].table.names == LINKS.names
    assert found[90].load.peak_Bps.tolist() == pytest.approx(kept[1][90].load.peak_Bps.tolist())
    assert [i.key for i in found[90].alerts] == [SLOW.key]
    assert [e.rule for e in found[90].alerts[0].effects] == ["job.slower-than-before"]
    assert found[10].alerts == ()


def test_incidents_are_told_from_first_to_last(kept: tuple[Path, list[Frame]]) -> None:
    with closing(Recorded(kept[0])) as recorded:
        slow, down = recorded.incidents()
    assert (slow.incident.place, slow.num_opened, slow.end_s) == (LINKS.names[1], 2, kept[1][140].wall_s)
    assert slow.start_s == kept[1][80].wall_s
    assert slow.cost_usd(0.0) == pytest.approx(3600 * 15 / 3600, rel=0.01)
    assert (down.incident.rule, down.end_s) == ("link.down", None)


def test_an_earlier_run_says_what_links_reach(kept: tuple[Path, list[Frame]]) -> None:
    assert is_history(kept[0])
    assert expected(str(kept[0])).link_reach_Bps == pytest.approx(dict.fromkeys(LINKS.names, CAPACITY))


def test_the_report_of_an_incident(kept: tuple[Path, list[Frame]]) -> None:
    answer = watch_report(kept[0], number=1)
    jsonschema.validate(answer.to_json(), IncidentReport.schema())
    text = str(answer)
    assert "2 incidents" in text
    assert "so job.slower-than-before at step: 2 s" in text
    assert "opened 2 times" in text
    from syncline.report.rendered import page

    assert all(words in page(answer) for words in ("Replace it.", "40 % of before", "<svg"))
    for number in (0, 3):
        with pytest.raises(WatchError, match="`number` must be from 1 to 2"):
            watch_report(kept[0], number=number)


def test_what_is_no_history_is_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no")
    assert not is_history(tmp_path / "x")
    with pytest.raises(WatchError, match="the history cannot be opened"):
        Recorded(tmp_path / "x")
    History(tmp_path / "empty.db").close()
    with pytest.raises(WatchError, match="this history has no frames"):
        Recorded(tmp_path / "empty.db")
