"""What each rank did: one row per span, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from syncline.timeline.columns import LEFT_OUT, MAX_BYTES, MAX_TIME_S, Column, Floats, Ints, Table, integer

Int32s = npt.NDArray[np.int32]


class SpanKind(IntEnum):
    """What a rank did during a span."""

    COMPUTE = 0
    SEND = 1
    RECV = 2
    REDUCE = 3
    COPY = 4
    ENCODE = 5
    DECODE = 6
    WAIT = 7
    COLLECTIVE = 8
    OTHER = 9


COMMUNICATION = (
    SpanKind.SEND,
    SpanKind.RECV,
    SpanKind.REDUCE,
    SpanKind.COPY,
    SpanKind.ENCODE,
    SpanKind.DECODE,
    SpanKind.COLLECTIVE,
)
"""Work a rank does only because it is not alone. WAIT is left out: it is no work, and is shown by itself."""

RULES: tuple[Column, ...] = (
    integer("rank", "int32"),
    Column("start_s", "float64", -MAX_TIME_S, MAX_TIME_S),
    Column("end_s", "float64", -MAX_TIME_S, MAX_TIME_S),
    integer("kind", "uint8", high=max(SpanKind), default=SpanKind.OTHER),
    integer("name", "int32", default=0),
    integer("stream", "int16", default=0),
    integer("step", "int32", low=-1, default=-1),
    integer("round", "int32", low=-1, default=-1),
    integer("size_bytes", "int64", default=0, high=MAX_BYTES),
    integer("peer", "int32", low=-1, default=-1),
    integer("link", "int32", low=-1, default=-1),
)


@dataclass(frozen=True, eq=False)
class Spans(Table):
    """Columns of spans. The arrays are taken as they are, made read-only here, and not copied.

    rank          the process that did it
    start_s end_s seconds on the timeline's own clock; keep its origin near the run (doubles since 1970 lose 0.2 us)
    kind          a SpanKind
    name          index into the timeline's `names`
    stream        CUDA stream, channel or thread of that rank
    step round    training step and round of the collective; -1 where there is none
    size_bytes    payload of the span; 0 where there is none
    peer link     the other rank, and index into the timeline's `links`; -1 where there is none
    """

    TABLE = "spans"
    RULES = RULES
    rank: Int32s
    start_s: Floats
    end_s: Floats
    kind: npt.NDArray[np.uint8] = LEFT_OUT
    name: Int32s = LEFT_OUT
    stream: npt.NDArray[np.int16] = LEFT_OUT
    step: Int32s = LEFT_OUT
    round: Int32s = LEFT_OUT
    size_bytes: Ints = LEFT_OUT
    peer: Int32s = LEFT_OUT
    link: Int32s = LEFT_OUT
