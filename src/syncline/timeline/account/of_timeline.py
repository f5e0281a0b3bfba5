"""The account of a timeline: the mean over its ranks, each from its first span to its last."""

from __future__ import annotations

import numpy as np

from syncline.timeline.account.account import Account, StepCause, account_of
from syncline.timeline.account.sweep import covered, overlap, sweep
from syncline.timeline.intervals import subtract
from syncline.timeline.spans import COMMUNICATION, SpanKind
from syncline.timeline.timeline import Timeline

_LATE = (StepCause.LATE, "ranks that still compute")
_NETWORK = (StepCause.NETWORK, "collectives and messages")
_IDLE = (StepCause.IDLE, "nothing recorded")
#: What a kind of span is in the account, in the order in which causes count.
_KINDS = {
    (StepCause.KERNELS, "computing"): (SpanKind.COMPUTE,),
    (StepCause.KERNELS, "encoding, decoding and adding"): (SpanKind.ENCODE, SpanKind.DECODE, SpanKind.REDUCE),
    (StepCause.COPIES, "copies"): (SpanKind.COPY,),
    _NETWORK: (SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECV),
    (StepCause.HOST, "other work of the host"): (SpanKind.OTHER,),
}


def timeline_account(timeline: Timeline, source: str, name: str = "step") -> Account:
    """Return the account of a step that a timeline shows.

    Who begins a step early waits the longer in it: a single rank's account says how ranks fell on the cores, the mean
    what the step is spent on. A rank that communicates while another has not computed what it will send waits for it.
    """
    spans, total = timeline.spans, dict.fromkeys((*_KINDS, _LATE, _IDLE), 0.0)
    hidden = dict.fromkeys(total, 0.0)
    ranks = timeline.ranks.tolist()
    computes = {rank: (spans.rank == rank) & (spans.kind == SpanKind.COMPUTE) for rank in ranks}
    for rank, rows in computes.items():  # what a rank computes when it has sent all delays nobody
        moves = (spans.rank == rank) & np.isin(spans.kind, COMMUNICATION)
        computes[rank] = rows & (spans.start_s < spans.end_s[moves].max(initial=-np.inf))
    for rank in ranks:
        mine = spans.rank == rank
        window = np.array([spans.start_s[mine].min()]), np.array([spans.end_s[mine].max()])
        rows = {label: mine & np.isin(spans.kind, kinds) for label, kinds in _KINDS.items()}
        rows[_NETWORK] |= mine & (spans.kind == SpanKind.WAIT)
        layers = [covered(spans.start_s[chosen], spans.end_s[chosen]) for chosen in rows.values()]
        parts = dict(zip(rows, sweep(layers), strict=True))
        others = np.any([computes[other] for other in ranks if other != rank] or [np.zeros(len(mine), bool)], axis=0)
        own = {label: float(overlap(part, *window)[0]) for label, part in parts.items()}
        told = float(
            overlap(subtract(parts[_NETWORK], covered(spans.start_s[others], spans.end_s[others])), *window)[0]
        )
        own |= {_LATE: own[_NETWORK] - told, _NETWORK: told}
        own[_IDLE] = max(float(window[1][0] - window[0][0]) - sum(own.values()), 0.0)
        for label, seconds in own.items():
            total[label] += seconds / len(ranks)
        for label, layer in zip(rows, layers, strict=True):
            if label[0] in (StepCause.COPIES, StepCause.NETWORK):
                late = own[_LATE] if label == _NETWORK else 0.0
                hidden[label] += (float(overlap(layer, *window)[0]) - own[label] - late) / len(ranks)
    return account_of(source, sum(total.values()), total, name=name, hidden=hidden)
