"""Spans from sockets, timelines, NCCL Inspector and flight recorders; hostile ones are counted, not believed."""

from __future__ import annotations

import grp
import json
import os
import pickle
import socket
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.watch.scenes import come

from syncline.describe.plain_pickle import read_plain_pickle
from syncline.errors import FileError, WatchError
from syncline.runtime.span_writer import MAX_SPANS, PER_DATAGRAM, SpanWriter, socket_path
from syncline.timeline import Source, SourceKind, SpanKind, TimelineBuilder, save
from syncline.watch.clock import Clock
from syncline.watch.spans.event import PendingEvent, SpanEvent, event_of
from syncline.watch.spans.flight_recorder import FlightRecorderSpans
from syncline.watch.spans.nccl_inspector import InspectorSpans
from syncline.watch.spans.timelines import TimelineSpans
from syncline.watch.spans.unix_socket import MAX_DATAGRAMS, SocketSpans, free_socket

GOOD = {
    "rank": 3,
    "kind": "collective",
    "name": "all_reduce",
    "start_s": 1.0,
    "end_s": 1.5,
    "size_bytes": 64,
    "step": 7,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


def test_a_span_comes_over_the_socket(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source, closing(SpanWriter(tmp_path / "s")) as writer:
        writer.send([GOOD, {**GOOD, "rank": 4}])
        come(source, 1)
        events: list[Any] = list(source.read())
    assert [(e.rank, e.name, e.kind, e.duration_s, e.step) for e in events] == [
        (3, "all_reduce", SpanKind.COLLECTIVE, 0.5, 7),
        (4, "all_reduce", SpanKind.COLLECTIVE, 0.5, 7),
    ]
    assert not (tmp_path / "s").exists()


def test_a_writer_without_an_agent_loses_and_goes_on(tmp_path: Path) -> None:
    with closing(SpanWriter(tmp_path / "nobody")) as writer:
        writer.send([GOOD])
        assert writer.num_lost == 1


def test_a_writer_is_never_held_up_by_an_agent_that_does_not_read(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source, closing(SpanWriter(tmp_path / "s")) as writer:
        for _ in range(20_000):
            writer.send([GOOD])
        until = time.monotonic() + 120
        num_read = 0
        while num_read + source.num_lost + writer.num_lost < 20_000 and time.monotonic() < until:
            num_read += len(source.read())
        assert num_read + source.num_lost + writer.num_lost == 20_000
        assert 0 < num_read < 20_000


def test_what_waits_for_a_look_is_bounded(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source:
        source._came.extend([(b"{}", 0, 0)] * (2 * MAX_DATAGRAMS))
        source.read()
        assert source.num_bad == MAX_DATAGRAMS


def test_a_step_of_many_buckets_is_told_in_parts_up_to_a_bound(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source, closing(SpanWriter(tmp_path / "s")) as writer:
        assert writer.is_heard()
        writer.send([GOOD] * (PER_DATAGRAM + 1))
        come(source, 2)
        assert len(source.read()) == PER_DATAGRAM + 1
        writer.send([GOOD] * (MAX_SPANS + 7))
        assert writer.num_lost >= 7
    assert not writer.is_heard()


def test_agent_and_job_meet_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("SYNCLINE_WATCH", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1000)  # root's agent is the whole host's, and listens elsewhere
    assert Path(socket_path()).parent == tmp_path
    assert free_socket() == socket_path()
    with closing(SocketSpans(socket_path(), Clock())):
        assert free_socket() == ""  # an agent is there already
        with pytest.raises(WatchError, match="another agent listens here"):
            SocketSpans(socket_path(), Clock())
    monkeypatch.setenv("SYNCLINE_WATCH", str(tmp_path / "mine"))
    assert free_socket() == socket_path() == str(tmp_path / "mine")
    monkeypatch.setenv("SYNCLINE_WATCH", "")
    assert free_socket() == ""
    with closing(SpanWriter()) as writer:
        assert not writer.is_heard()


def test_nobody_can_take_the_name_of_the_socket_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that others can write to is not used, whatever the environment says."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.delenv("SYNCLINE_WATCH", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert Path(socket_path()).parent == home
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert socket_path() == "/run/syncline/watch.sock"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a socket to a group")
def test_a_root_agent_lets_a_group_in_and_says_when_nobody_can(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as alone:
        assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600
        assert "only root's jobs can report here" in alone.problem
    with closing(SocketSpans(tmp_path / "s", Clock(), grp.getgrgid(1).gr_name)) as shared:
        found = os.stat(tmp_path / "s")
        assert (stat.S_IMODE(found.st_mode), found.st_gid, shared.problem) == (0o660, 1, "")
    with pytest.raises(WatchError, match='no group "nobody-of-that-name"'):
        SocketSpans(tmp_path / "s", Clock(), "nobody-of-that-name")


def test_rubbish_on_the_socket_is_counted(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source:
        out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for text in (b"", b"{", b"[[[[", b"null", b'{"rank": -1}', json.dumps(GOOD).encode(), b"[" * 50_000):
            out.sendto(text, str(tmp_path / "s"))
        out.close()
        come(source, 7)
        assert len(source.read()) == 1
        assert source.num_bad == 6


def test_a_stale_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stale.bind(str(tmp_path / "s"))
    stale.close()
    SocketSpans(tmp_path / "s", Clock()).close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(WatchError, match="not a socket, and will not be replaced"):
        SocketSpans(tmp_path / "file", Clock())
    assert (tmp_path / "file").read_text() == "precious"


@given(JSON)
def test_any_json_is_a_span_or_nothing(data: object) -> None:
    event_of(data, Clock())


@given(
    st.dictionaries(
        st.sampled_from([*GOOD, "peer", "clock"]), st.integers() | st.floats() | st.text(max_size=5) | st.none()
    )
)
def test_a_span_with_strange_fields_is_bounded_or_nothing(strange: dict[str, object]) -> None:
    event: Any = event_of({**GOOD, **strange}, Clock())
    if event is not None:
        assert event.end_s >= event.start_s
        assert 0 <= event.rank < 1 << 20
        assert event.size_bytes >= 0
        assert event.step >= -1


def test_wall_times_are_moved_to_the_monotonic_clock() -> None:
    clock = Clock()
    event: Any = event_of({**GOOD, "clock": "wall", "start_s": time.time() - 1, "end_s": time.time()}, clock)
    assert event is not None
    assert event.end_s == pytest.approx(time.monotonic(), abs=30)


INSPECTOR = {
    "header": {"id": "0xad56c683b0c4ef", "rank": 1, "n_ranks": 3, "nnodes": 3},
    "metadata": {
        "inspector_output_format_version": "v4.0",
        "dump_timestamp_us": 1772585717263338,
        "hostname": "w0",
        "pid": 48,
    },
    "coll_perf": {
        "coll": "AllReduce",
        "coll_sn": 8995,
        "coll_msg_size_bytes": 2360832,
        "coll_exec_time_us": 5663.0,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 0.416887,
        "coll_busbw_gbs": 0.555850,
    },
}


def test_inspector_files_are_followed_as_they_grow(tmp_path: Path) -> None:
    source = InspectorSpans(tmp_path, Clock())
    file = tmp_path / "host-pid48.log"
    file.write_text(json.dumps(INSPECTOR) + "\n" + json.dumps(INSPECTOR)[:40])
    (event,) = source.read()
    assert (event.rank, event.name, event.size_bytes) == (1, "AllReduce", 2360832)
    assert event.duration_s == pytest.approx(5.663e-3)
    with file.open("a") as more:
        more.write(json.dumps(INSPECTOR)[40:] + "\n{broken\n")
    assert len(source.read()) == 1
    assert source.num_bad == 1
    file.write_text(json.dumps(INSPECTOR) + "\n")  # rotated: shorter than before
    assert len(source.read()) == 1
    assert source.read() == []


def entry(number: int, **changes: object) -> dict[str, object]:
    now_ns = time.time_ns()
    return {
        "record_id": number,
        "pg_name": "0",
        "profiling_name": "nccl:all_reduce",
        "state": "completed",
        "input_sizes": [[1024, 4]],
        "input_dtypes": ["Float"],
        "time_created_ns": now_ns - 10**7,
        "time_discovered_started_ns": now_ns - 5 * 10**6,
        "time_discovered_completed_ns": now_ns,
        **changes,
    }


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_flight_recorder_dumps_in_both_forms(tmp_path: Path, form: str) -> None:
    source = FlightRecorderSpans(tmp_path, Clock())
    dump = {"version": "2.10", "pg_config": {}, "entries": [entry(0), entry(1, state="started"), entry(2)]}
    data = json.dumps(dump).encode() if form == "json" else pickle.dumps(dump, protocol=2)
    (tmp_path / "nccl_trace_rank_5").write_bytes(data)
    assert source.read() == []  # a file that still grows is left alone for one look
    given = source.read()
    events = [event for event in given if isinstance(event, SpanEvent)]
    assert [(e.rank, e.name, e.size_bytes) for e in events] == [(5, "all_reduce", 16384)] * 2
    (waited,) = (event for event in given if isinstance(event, PendingEvent))
    assert (waited.rank, waited.name, waited.number, waited.is_started) == (5, "all_reduce", 1, True)
    assert events[0].duration_s == pytest.approx(5e-3, rel=0.01)
    assert source.read() == []


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch /tmp/syncline-was-here",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_something_is_refused(protocol: int) -> None:
    with pytest.raises(FileError, match="not a plain value; it is not opened"):
        read_plain_pickle(pickle.dumps({"entries": [Evil()]}, protocol=protocol))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5) | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


def test_a_pickle_does_not_decide_how_much_memory_is_taken() -> None:
    with pytest.raises(FileError, match="not a whole pickle"):
        read_plain_pickle(pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + (1 << 40).to_bytes(8, "little"))


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_pickles_are_read_as_pickle_reads_them(value: object, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_values_or_one_error(data: bytes) -> None:
    try:
        read_plain_pickle(data)
    except FileError:
        return


def test_timelines_of_a_run_are_read_once_and_placed_by_their_origin(tmp_path: Path) -> None:
    source = TimelineSpans(tmp_path, Clock())
    origin = time.time() - 100
    builder = TimelineBuilder(Source(SourceKind.RUNTIME, "test"), {"wall_origin_s": origin})
    builder.add_span(2, 0.5, 0.75, SpanKind.COLLECTIVE, "all_gather", size_bytes=10, step=1)
    save(builder.build(), tmp_path / "rank2.timeline")
    (tmp_path / "broken.timeline").write_bytes(b"not a timeline")
    assert source.read() == []
    (event,) = source.read()
    assert (event.rank, event.name, event.step, event.duration_s) == (2, "all_gather", 1, 0.25)
    assert event.start_s == pytest.approx(time.monotonic() - 99.5, abs=30.0)
    assert source.num_bad == 1
    assert source.read() == []
