"""The account of a previewed step: kernels, exchanges and the host of one rank, as they were executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from syncline.previewing.execute import Bools, GraphRun
from syncline.timeline.account import Account, StepCause, account_of
from syncline.timeline.account.sweep import covered, overlap, sweep
from syncline.timeline.collective import operation_of
from syncline.timeline.recording.kernel_kind import LINES
from syncline.workload.graph import Op

#: What a kind of operation is in the account, in the order in which causes count; the host's rows are laid apart.
_CAUSES = ((Op.COMPUTE, StepCause.KERNELS), (Op.MEMORY, StepCause.COPIES), (Op.COLLECTIVE, StepCause.NETWORK),
           (Op.SEND, StepCause.NETWORK), (Op.RECV, StepCause.STAGE))  # fmt: skip
_KINDS = {"product": "products", "convolution": "products", "attention": "attention"}
WAITS = (StepCause.LATE, "other ranks")


def account_of_run(run: GraphRun, rank: int = 0, *, without: Mapping[StepCause, float] | None = None) -> Account:
    """Return the account of the last step of a rank: from the end of the step before it to its own."""
    graph, work = run.graph, run.graph.workload
    last = float(run.end_s[graph.step == graph.num_steps - 1].max(initial=0.0))
    begin, end = np.array([last - run.step_time_s]), np.array([last])
    mine = work.rank == rank
    labels: dict[tuple[StepCause, str], Bools] = {}
    for kind, cause in _CAUSES:
        rows = mine & (work.kind == kind) & (graph.source >= 0)
        for label in np.unique(work.label[rows]).tolist():
            of = rows & (work.label == label)
            for what, chosen in _lines(run, rank, cause, work.names[label], of):
                key = (cause, what)
                labels[key] = labels[key] | chosen if key in labels else chosen
    labels[StepCause.HOST, "launching kernels"] = mine & (graph.source < 0)
    labels[StepCause.HOST, "reading values"] = mine & (work.kind == Op.WAIT)
    layers = [covered(run.begin_s[rows], run.end_s[rows]) for rows in labels.values()]
    seconds = [float(overlap(part, begin, end)[0]) for part in sweep(layers)]
    whole = [float(overlap(layer, begin, end)[0]) for layer in layers]
    parts = dict(zip(labels, seconds, strict=True))
    parts[WAITS] = max(run.step_time_s - sum(seconds), 0.0)
    moved = (StepCause.NETWORK, StepCause.STAGE, StepCause.COPIES)
    hidden = {key: took - own for key, took, own in zip(labels, whole, seconds, strict=True) if key[0] in moved}
    return account_of("previewed", run.step_time_s, parts, name="previewed step", hidden=hidden, without=without)


def _lines(run: GraphRun, rank: int, cause: StepCause, name: str, rows: Bools) -> Iterator[tuple[str, Bools]]:
    """Yield the lines of an account that operations of one name are on: those that a trace of the script has too."""
    if cause is not StepCause.KERNELS:
        yield operation_of(name) or name, rows
        return
    ops = run.graph.captures[rank].ops
    updates = np.zeros(len(rows), bool)
    chosen = np.flatnonzero(rows)
    updates[chosen] = [ops[source].phase == "optimizer" for source in run.graph.source[chosen].tolist()]
    for what, mine in ((LINES["optimizer"], rows & updates), (LINES[_KINDS.get(name, "memory")], rows & ~updates)):
        if mine.any():
            yield what, mine
