from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import ScheduleError
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.schedule.counts import counted_cost
from syncline.schedule.family.families import FAMILIES, Options
from syncline.schedule.formats.json_file import dumps, loads, to_json


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("n", [1, 2, 6])
def test_round_trip_is_lossless(name: str, n: int) -> None:
    for kind in FAMILIES[name].kinds:
        if kind is Kind.SEND_RECV and n == 1:
            continue
        sizes = tuple(range(1, n * n + 1)) if kind is Kind.ALL_TO_ALLV else ()
        schedule = FAMILIES[name].make(Options(n, kind, peer=n - 1, channels=2, sizes=sizes))
        back = loads(dumps(schedule))
        assert to_json(back) == to_json(schedule)
        assert counted_cost(back) == counted_cost(schedule)
        verify(back)


def test_large_ring_stays_small() -> None:
    assert len(dumps(ring(4096))) < 300_000


def changed(path: list[str | int], value: Any) -> str:
    whole = to_json(hierarchical((2, 2)))
    at: Any = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["format"], "other", "format: must be syncline-schedule, not"),
        (["version"], 99, "version: must be 1, not 99"),
        (["extra"], 1, 'unknown key "extra"'),
        (["collective", "kind"], "all_reverse", 'no collective is called "all_reverse"'),
        (["collective", "num_ranks"], 10**9, "more than the"),
        (["collective", "num_ranks"], -1, "at least one rank"),
        (["collective", "num_ranks"], True, "collective.num_ranks: must be a whole number, not True"),
        (["strands", 0, "share"], "1/0", "strands.0.share: "),
        (["strands", 0, "share"], "1/3", "add up to 1, not 1/3"),
        (["strands", 0, "stages", 0, "kernel"], 7, "there are 3 kernels, and no kernel 7"),
        (["strands", 0, "stages", 0, "members"], [[0, 1], [2]], "every group needs 2 members"),
        (["strands", 0, "stages", 0, "members"], [[0, 1], [2, 9]], "rank 9 of a group is outside 0 to 3"),
        (["strands", 0, "stages", 0, "members"], [[0, 1], [2, 2]], "same vertex twice"),
        (["strands", 0, "stages", 0, "base"], 3, "are outside the strand's"),
        (["strands", 0, "stages", 0, "index"], [[2, 0]], "map to the same chunk"),
        (["strands", 0, "stages", 0, "index"], [[3, 1]], "do not number 2 chunks"),
        (["kernels", 0, "rounds", 0, "src"], [0, 5], "src 5 in row 1 is outside 0 to 1"),
        (["kernels", 0, "rounds", 0, "src"], [0, "x"], "kernels.0.rounds.0.src"),
        (["kernels", 0, "rounds", 0, "dst"], [0, 1], "from vertex 0 to itself"),
        (["kernels", 0, "rounds", 0, "op"], 7, "kernels.0.rounds.0.op"),
        (["kernels", 0, "rounds", 0, "count"], [1, 2, 3], "columns of"),
        (["kernels", 0, "rounds", 0, "repeat"], -1, "repeat: must be at least 0, not -1"),
        (["kernels", 0, "rounds", 0, "repeat"], 1 << 30, "rounds, more than"),
        (["kernels", 0, "rounds", 0, "window"], 99, "window of 99 chunks; the kernel has 2"),
        (["kernels", 0, "num_chunks"], 10**12, "num_chunks: must be at most"),
        (["kernels"], "none", "kernels: must be a list, not"),
        (["name"], "x" * 2000, "name: "),
    ],
)
def test_wrong_fields_are_named(path: list[str | int], value: Any, text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        loads(changed(path, value))
    assert text in str(caught.value)
    assert caught.value.where.startswith("schedule")


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a": NaN}', "null", "[]", b"\xff\xfe", '{"format": "syncline-schedule"}']
)
def test_what_is_not_a_schedule_is_refused(text: str | bytes) -> None:
    with pytest.raises(ScheduleError):
        loads(text, "bad.json")


def test_syntax_errors_say_line_and_column() -> None:
    with pytest.raises(ScheduleError, match=r"bad.json line 2 column \d+: this is not JSON"):
        loads('{"format":\n oops}', "bad.json")


leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


PLACES = [
    *((("collective", key)) for key in ("kind", "num_ranks")),
    *(("strands", 0, key) for key in ("share", "channel", "rail", "num_chunks", "weights", "stages")),
    *(("kernels", 0, "rounds", 0, key) for key in ("src", "dst", "chunk", "count", "op", "block", "repeat")),
    *(("kernels", 0, "rounds", 0, key) for key in ("at_once", "window", "wrap", "src_circle", "chunk_step")),
]


@given(path=st.sampled_from(PLACES), value=anything)
@settings(max_examples=100, deadline=None)
def test_hostile_values_never_escape_as_anything_else(path: tuple[str | int, ...], value: Any) -> None:
    try:
        text = changed(list(path), value)
    except (ValueError, UnicodeEncodeError):
        return
    with contextlib.suppress(ScheduleError):
        loads(text)
