"""Hand-made and random timelines for these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from syncline.timeline import LinkSamples, NamedLinks, Source, SourceKind, SpanKind, Spans, Timeline, TimelineBuilder

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_TIMES = st.floats(-1e6, 1e6) | st.floats(0, 1, width=32)


@pytest.fixture(scope="session")
def source() -> Source:
    return Source(SourceKind.SIMULATED_FLOW, "syncline flow", "0.1", ignores=("packet loss", "host jitter"), seed=7)


Row = tuple[int, float, float, SpanKind, str]


@pytest.fixture(scope="session")
def of_rows(source: Source) -> Callable[..., Timeline]:
    """Return a maker of timelines from (rank, start, end, kind, name) rows."""

    def make(rows: list[Row], **more: Any) -> Timeline:
        builder = TimelineBuilder(more.pop("source", source))
        for rank, start_s, end_s, kind, name in rows:
            builder.add_span(rank, start_s, end_s, kind, name, **more)
        return builder.build()

    return make


@pytest.fixture(scope="session")
def timelines() -> st.SearchStrategy[Timeline]:
    return _timelines()


@st.composite
def _timelines(draw: st.DrawFn) -> Timeline:
    names = tuple(draw(st.lists(_TEXT, unique=True, min_size=1, max_size=4)))
    link_names = tuple(draw(st.lists(_TEXT, unique=True, max_size=4)))
    capacity = draw(
        st.lists(
            st.floats(1e-3, 1e12) | st.sampled_from([0.0, float("nan")]),
            min_size=len(link_names),
            max_size=len(link_names),
        )
    )
    num_spans = draw(st.integers(0, 6))
    num_samples = draw(st.integers(0, 4)) if link_names else 0
    return Timeline(
        draw(_sources()),
        _spans(draw, num_spans, len(names), len(link_names)),
        names,
        _samples(draw, num_samples, len(link_names)),
        NamedLinks(link_names, np.array(capacity, np.float64)),
        draw(st.dictionaries(_TEXT, _json(), max_size=2)),
    )


def _sources() -> st.SearchStrategy[Source]:
    ignores = st.lists(_TEXT, max_size=3).map(tuple)
    seed = st.none() | st.integers(-(2**63), 2**64 - 1)
    return st.builds(Source, st.sampled_from(SourceKind), _TEXT.filter(bool), _TEXT, ignores, seed)


def _json() -> st.SearchStrategy[Any]:
    leaf = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | _TEXT
    )
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=3
    )


def _spans(draw: st.DrawFn, num: int, num_names: int, num_links: int) -> Spans:
    start = draw(arrays.arrays(np.float64, num, elements=_TIMES))
    length = draw(arrays.arrays(np.float64, num, elements=st.floats(0, 1e6)))

    def whole(dtype: str, low: int, high: int) -> Any:
        return draw(arrays.arrays(dtype, num, elements=st.integers(low, high)))

    return Spans(
        rank=whole("int32", 0, 2**31 - 1),
        start_s=start,
        end_s=start + length,
        kind=whole("uint8", 0, max(SpanKind)),
        name=whole("int32", 0, num_names - 1),
        stream=whole("int16", 0, 2**15 - 1),
        step=whole("int32", -1, 2**31 - 1),
        round=whole("int32", -1, 2**31 - 1),
        size_bytes=whole("int64", 0, 2**53),
        peer=whole("int32", -1, 2**31 - 1),
        link=whole("int32", -1, num_links - 1),
    )


def _samples(draw: st.DrawFn, num: int, num_links: int) -> LinkSamples:
    start = draw(arrays.arrays(np.float64, num, elements=_TIMES))
    length = draw(arrays.arrays(np.float64, num, elements=st.floats(0, 1e6)))
    link = draw(arrays.arrays("int32", num, elements=st.integers(0, max(0, num_links - 1))))
    size, rate = (draw(arrays.arrays(np.float64, num, elements=st.floats(0, 1e18))) for _ in range(2))
    return LinkSamples(link, start, start + length, size, rate)
