"""The past: bounded, readable while written, whole after a kill, and no burden when the disk is full."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, Job, frame, load, table

from syncline.errors import WatchError
from syncline.watch.frame import column, unpack
from syncline.watch.history import MAX_PENDING, History, LinkHistory

LINKS = table(6)


def test_a_frame_is_kept_and_read_back(tmp_path: Path) -> None:
    job = Job()
    job.run_step(1000.0)
    history = History(tmp_path / "h.db")
    drops = np.zeros(6)
    drops[3] = 7.5
    history.add(frame(1, LINKS, load(LINKS, 0.25, drops_per_s=drops), job.view.state(1000.2)))
    found = history.at(1e12)
    assert found is not None
    assert found["layout"]["names"] == list(LINKS.names)
    assert column(found["frame"], "rate_Bps") == pytest.approx([0.25 * CAPACITY] * 6)
    assert column(found["frame"], "drops_per_s").tolist() == drops.tolist()
    assert found["frame"]["job"]["collectives"][0]["name"] == "all-reduce"
    history.close()


def test_json_and_packed_forms_say_the_same() -> None:
    one = frame(3, LINKS, load(LINKS, 0.4, up=[1, 0, 1, 1, 1, 1]))
    assert unpack(one.pack()) == one.to_json()


@pytest.mark.parametrize("data", [b"", b"SLF1", b"XXXX" + bytes(8), b"SLF1\x05\0\0\0\1\0\0\0notzlib"])
def test_a_damaged_frame_is_one_error(data: bytes) -> None:
    with pytest.raises(WatchError, match="a frame of the history is damaged"):
        unpack(data)


def test_series_are_binned_and_time_travel_finds_the_moment(tmp_path: Path) -> None:
    history = History(tmp_path / "h.db")
    for k in range(100):
        history.add(frame(k, LINKS, load(LINKS, k / 100)))
    series = history.series(LINKS.names[2], 0, 1e12, max_points=10)
    assert len(series["wall_s"]) == 10
    rates = [rate for rate in series["rate_Bps"] if rate is not None]
    assert len(rates) == 10 and rates == sorted(rates)
    moment = 1.7e9 + 1000 + 40 * 0.25
    found = history.at(moment + 0.01)
    assert found is not None
    assert column(found["frame"], "rate_Bps")[0] == pytest.approx(0.40 * CAPACITY, rel=1e-6)
    assert found["frame"]["seq"] == 40
    unknown: LinkHistory = {
        "link": "no such link",
        "wall_s": [],
        "rate_Bps": [],
        "peak_Bps": [],
    }
    assert history.series("no such link", 0, 1e12) == unknown
    history.close()


def test_the_file_stays_within_its_bound_and_keeps_the_newest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    links = table(200)
    history = History(tmp_path / "h.db", max_bytes=256 << 10)
    for k in range(600):
        history.add(frame(k, links, load(links, rng.random(200))))
    extent = history.extent()
    assert history.path.stat().st_size < 400 << 10
    assert 50 < extent["num_frames"] < 550
    assert extent["last_s"] == pytest.approx(1.7e9 + 1000 + 599 * 0.25)
    history.close()


def test_links_that_come_and_go_keep_their_own_past(tmp_path: Path) -> None:
    history = History(tmp_path / "h.db")
    more = table(8, version=2)
    history.add(frame(1, LINKS, load(LINKS, 0.1)))
    history.add(frame(2, more, load(more, 0.2)))
    assert history.series(more.names[7], 0, 1e12)["rate_Bps"] == pytest.approx([0.2 * CAPACITY])
    assert history.series(more.names[0], 0, 1e12)["rate_Bps"] == pytest.approx([0.1 * CAPACITY, 0.2 * CAPACITY])
    history.close()


def test_a_full_disk_is_a_state_and_what_waits_is_written_later(tmp_path: Path) -> None:
    history = History(tmp_path / "h.db")
    history.add(frame(0, LINKS, load(LINKS)))
    pages = history._base.execute("PRAGMA page_count").fetchone()[0]
    history._base.execute(f"PRAGMA max_page_count = {pages + 2}")  # SQLite then says what it says on a full disk
    for k in range(1, MAX_PENDING + 200):
        history.add(frame(k, LINKS, load(LINKS)))
    assert "full" in history.problem
    assert history.num_dropped > 0
    assert history.extent()["num_pending"] == MAX_PENDING
    history._base.execute("PRAGMA max_page_count = 100000")
    history.add(frame(5000, LINKS, load(LINKS)))
    assert history.problem == ""
    assert history.extent()["num_pending"] == 0
    assert history.extent()["num_frames"] > MAX_PENDING
    history.close()


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from syncline.watch.history import History
from tests.watch.scenes import frame, load, table
links, history, k = table(50), History(sys.argv[1]), 0
while True:
    k += 1
    history.add(frame(k, links, load(links, (k % 100) / 100)))
    print(k, flush=True)
"""


@pytest.mark.parametrize("after", [0.0, 0.15])
def test_kill_9_loses_nothing_that_was_added_and_hurts_nothing(tmp_path: Path, after: float) -> None:
    root = str(Path(__file__).parents[2])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "h.db"), root], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(after)
    os.kill(writer.pid, signal.SIGKILL)
    said = writer.stdout.read().split()
    writer.wait()
    writer.stdout.close()
    last = int(said[-1]) if said else 1
    base = sqlite3.connect(tmp_path / "h.db")
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    kept = [unpack(row[0])["seq"] for row in base.execute("SELECT body FROM frame ORDER BY seq")]
    base.close()
    history = History(tmp_path / "h.db")
    assert kept[-1] >= last
    assert kept == list(range(1, kept[-1] + 1))
    history.add(frame(10**6, LINKS, load(LINKS)))
    assert history.problem == ""
    history.close()


def test_another_process_reads_while_one_writes(tmp_path: Path) -> None:
    writer = History(tmp_path / "h.db")
    writer.add(frame(1, LINKS, load(LINKS)))
    reader = History(tmp_path / "h.db", read_only=True)
    assert reader.extent()["num_frames"] == 1
    writer.add(frame(2, LINKS, load(LINKS)))
    assert reader.extent()["num_frames"] == 2
    reader.close()
    writer.close()


def test_a_file_that_is_no_history_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes\n" * 100)
    with pytest.raises(WatchError, match="the history cannot be opened") as error:
        History(tmp_path / "notes.txt")
    assert "--history" in error.value.hint
    assert (tmp_path / "notes.txt").read_text().startswith("these are my notes")
