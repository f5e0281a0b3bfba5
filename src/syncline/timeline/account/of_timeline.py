"""The account of a timeline: spans of the rank that waits longest for its network, from its first to its last."""

from __future__ import annotations

import numpy as np

from syncline.timeline.account.account import Account, StepCause, account_of
from syncline.timeline.account.sweep import covered, overlap, sweep
from syncline.timeline.spans import SpanKind
from syncline.timeline.timeline import Timeline

#: What a kind of span is in the account, in the order in which causes count.
_KINDS = {
    (StepCause.KERNELS, "computing"): (SpanKind.COMPUTE,),
    (StepCause.KERNELS, "encoding, decoding and adding"): (SpanKind.ENCODE, SpanKind.DECODE, SpanKind.REDUCE),
    (StepCause.COPIES, "copies"): (SpanKind.COPY,),
    (StepCause.NETWORK, "collectives and messages"): (SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECV),
    (StepCause.LATE, "other ranks and their messages"): (SpanKind.WAIT,),
    (StepCause.HOST, "other work of the host"): (SpanKind.OTHER,),
}
_IDLE = (StepCause.IDLE, "nothing recorded")


def timeline_account(timeline: Timeline, source: str, name: str = "step") -> Account:
    """Return the account of a step that a timeline shows."""
    rank = int(timeline.ranks[int(timeline.exposed_s().argmax())])
    mine = timeline.spans.rank == rank
    start, end, kind = (column[mine] for column in (timeline.spans.start_s, timeline.spans.end_s, timeline.spans.kind))
    begin, last = np.array([start.min()]), np.array([end.max()])
    rows = {label: np.isin(kind, kinds) for label, kinds in _KINDS.items()}
    layers = [covered(start[chosen], end[chosen]) for chosen in rows.values()]
    own = [float(overlap(part, begin, last)[0]) for part in sweep(layers)]
    whole = [float(overlap(layer, begin, last)[0]) for layer in layers]
    step_s = float(last[0] - begin[0])
    parts = dict(zip(rows, own, strict=True)) | {_IDLE: max(step_s - sum(own), 0.0)}
    moves = (StepCause.COPIES, StepCause.NETWORK)
    hidden = {label: took - bare for label, took, bare in zip(rows, whole, own, strict=True) if label[0] in moves}
    return account_of(source, step_s, parts, name=name, hidden=hidden)
