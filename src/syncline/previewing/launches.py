"""What the host does before each operation of a step: as it usually costs, or as the script's own host was timed.

On a CPU the host does the operators too: what an operator takes is all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.previewing.kernels import convolution
from syncline.previewing.measured import OwnHost
from syncline.previewing.price import KernelPrice, Pricer
from syncline.previewing.record import Capture, CapturedOp

SHARDED = ("all_gather", "reduce_scatter")
LISTS = ("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad")
CALLED = 2  # operators for one that launches a kernel, where a capture of an older version does not say
UNIT_HOOKS = 3
"""Hooks of an FSDP2 unit in a step: two gather, one scatters. One rank alone sends nothing, but the hooks run."""


def launches(captured: Capture, pricer: Pricer, fused: Mapping[int, KernelPrice]) -> dict[int, float]:
    """Return seconds of the host before each kernel and collective of the steps; fused ones are launched together.

    An optimizer does much in Python before its first.
    """
    own = pricer.own(captured.rank)
    sharded = any(kernel.namespace == "fsdp" for kernel in captured.kernels)
    found: dict[int, float] = {}
    for first, last in captured.steady:
        rows = [i for i in range(first, last) if _launched(captured.ops[i], fused.get(i))]
        if own is None:
            begin = next((i for i in rows if captured.ops[i].phase == "optimizer"), None)
            found |= {index: _usual(captured, index, pricer, index in fused, sharded) for index in rows}
            if begin is not None and not captured.on_cpu:
                found[begin] += pricer.host.optimizer_s
        else:
            found |= _spread(captured, rows, pricer, own, fused)
    return found


def _launched(op: CapturedOp, fused: KernelPrice | None) -> bool:
    return op.kind != "sync" and (fused is None or fused.seconds > 0)


def _spread(
    captured: Capture, rows: list[int], pricer: Pricer, own: OwnHost, fused: Mapping[int, KernelPrice]
) -> dict[int, float]:
    """Share what the host did in each phase: a launch that was timed keeps its time, the rest is alike for all.

    An optimizer does the rest before its first operation: it gathers its parameters into lists.
    """
    found: dict[int, float] = {}
    for phase in ("forward", "backward", "optimizer"):
        mine = [index for index in rows if captured.ops[index].phase == phase]
        if not mine:
            continue
        timed = {index: 0.0 if index in fused else _timed(captured, index, pricer) for index in mine}
        whole, known = own.seconds(phase), sum(timed.values())
        if known > whole:
            found |= {index: each * whole / known for index, each in timed.items()}
        elif phase == "optimizer":
            found |= timed
            found[mine[0]] += whole - known
        else:
            found |= {index: each + (whole - known) / len(mine) for index, each in timed.items()}
    return found


def _timed(captured: Capture, index: int, pricer: Pricer) -> float:
    op = captured.ops[index]
    return pricer.host_s(captured.kernels[op.signature]) if op.kind == "kernel" else 0.0


def _usual(captured: Capture, index: int, pricer: Pricer, fused: bool, sharded: bool) -> float:
    """Return what hosts usually take to launch an operator."""
    op, host = captured.ops[index], pricer.host
    if captured.on_cpu:
        return _timed(captured, index, pricer)
    if op.kind != "kernel":
        what = op.extra[0] if isinstance(op.extra, list) else ""
        return host.shard_s if what in SHARDED else host.collective_s
    if fused:
        return host.forward_s  # the code that torch.compile writes launches it from Python, in the backward too
    kernel = captured.kernels[op.signature]
    called = op.extra[3] if isinstance(op.extra, list) and len(op.extra) > 3 else CALLED
    if not called:  # a CUDA graph launches it with the one before
        return 0.0
    own = host.forward_s + called * host.called_s
    if op.phase == "backward":
        own = host.backward_s + called * host.backward_called_s
    elif op.phase == "optimizer":  # keeps no record for a backward
        own = host.backward_s + host.backward_called_s + (called - 1) * host.looped_s
    own = max(own + (host.convolution_s if convolution.is_convolution(kernel) else 0.0), pricer.host_s(kernel))
    if captured.world == 1 and "chunk_cat" in kernel.name:
        own += UNIT_HOOKS * host.shard_s
    if any(word in kernel.name for word in LISTS):
        own += (host.listed_s + (host.sharded_s if sharded else 0.0)) * len(kernel.ins)
    return own
