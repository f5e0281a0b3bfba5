"""One rank of tools/gpu_suite.py: cases one after the other, one JSON object a line from rank 0."""

from __future__ import annotations

import datetime
import faulthandler
import json
import math
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import syncline.torch
from gpu.gpu_case import WIDTH, Case, checksum, gradient, off
from syncline.errors import NonFiniteError

OPTIONS: dict[str, Any] = {"warmup": 0, "check_every": 0, "timeout_s": 40.0, "piece_bytes": 262144}
# What the average of one step may be off by, of its length: casts and blocks by their rounding, the others by what they
# leave for later.
MOST = {"fp32": 1e-6, "bf16": 5e-3, "fp16": 1e-3, "int8": 0.02, "int4": 0.25}
REDUCE_SCATTER = dist.reduce_scatter_tensor
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def ddp(case: Case, codec: str) -> dict[str, Any]:
    """One average against the true mean, then training."""
    return _averages(case, case.ddp(), codec)


def fsdp(case: Case, codec: str) -> dict[str, Any]:
    """The same for a sharded model."""
    return _averages(case, case.fsdp(), codec)


def _averages(case: Case, model: Any, codec: str) -> dict[str, Any]:
    handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
    case.loss(model, 0).backward()
    error = off(gradient(model), case.true_mean(0))
    losses = case.train(model, range(1, 7))
    sent = handle.steps[-1].wire_bytes
    handle.close()
    most = MOST.get(codec.partition(":")[0], 4.0)
    same = case.equal(model)
    passed = same and error <= most and all(map(math.isfinite, losses))
    return {"passed": passed, "replicas_equal": same, "error": error, "most": most, "last_loss": losses[-1],
            "wire_bytes": sent}  # fmt: skip


def feedback(case: Case, codec: str) -> dict[str, Any]:
    """What was received so far and what all owe on average is the sum of the true means."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
    got = due = torch.zeros((), device=case.device)
    for step in range(5):
        model.zero_grad()
        case.loss(model, step).backward()
        got, due = got + gradient(model), due + case.true_mean(step)
    owed = handle.state_dict()["residuals"]
    handle.close()
    names = [name for name, _ in model.module.named_parameters()]
    error = off(got + torch.cat([owed[name].flatten() for name in names]), due)
    return {"passed": error < 1e-5, "error": error, "without_what_is_owed": off(got, due)}


def nan(case: Case, policy: str) -> dict[str, Any]:
    """Rank 2 has a gradient that is not finite."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, codec="int8", nan=policy, **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    case.train(model, range(2), optimizer)
    before, text = checksum(model), ""
    optimizer.zero_grad()
    loss = case.loss(model, 2) * (float("nan") if case.rank == 2 else 1.0)
    try:
        loss.backward()
        optimizer.step()
    except NonFiniteError as error:
        text = str(error)
    after = checksum(model)
    if policy == "raise":
        handle.abandon()
        passed = "rank 2" in text and after == before
    else:
        case.train(model, range(3, 5), optimizer)
        passed = after == before and case.equal(model) and checksum(model) != before
        handle.close()
    return {"passed": passed, "said": text}


def nan2d(case: Case, codec: str) -> dict[str, Any]:
    """Replicas of two shards: rank 3's gradient is not finite: its replica is named."""
    dist.reduce_scatter_tensor = cast("Any", _through_host)
    mesh = init_device_mesh(case.device.type, (2, 2), mesh_dim_names=("across", "inside"))
    model: Any = case.network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
    case.train(model, range(2))
    text = ""
    try:
        (case.loss(model, 2) * (float("nan") if case.rank == 3 else 1.0)).backward()
    except NonFiniteError as error:
        text = str(error)
    handle.abandon()
    return {"passed": "on rank 2 or 3 is not finite at step 2" in text, "said": text}


def _through_host(output: torch.Tensor, input: torch.Tensor, op: Any, group: Any = None, async_op: bool = False) -> Any:
    """Gloo's reduce-scatter takes tensors of the host only."""
    sums = torch.empty(output.shape, dtype=output.dtype)
    REDUCE_SCATTER(sums, input.cpu(), op=dist.ReduceOp.SUM, group=group)
    output.copy_(sums / dist.get_world_size(group) if op == dist.ReduceOp.AVG else sums)


def checkpoint(case: Case, kind: str, codec: str) -> dict[str, Any]:
    """Save after three steps, go on; a new model resumes there and comes to the same bits."""
    folder = case.out / f"checkpoint-{kind}"
    if case.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
    found = []
    for resumes in (False, True):
        model = case.ddp() if kind == "ddp" else case.fsdp()
        handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        saved = syncline.torch.Checkpoints(folder)
        if resumes:
            case.train(model, range(1), optimizer)  # DDP cuts its buckets anew after the first step
            saved.restore(model, optimizer, handle)
        else:
            case.train(model, range(3), optimizer)
            saved.save(3, model, optimizer, handle)
        case.train(model, range(3, 6), optimizer)
        found.append(checksum(model))
        handle.close()
    dist.barrier()
    if case.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return {"passed": found[0] == found[1] and case.equal(model), "bits": found}


def levels(case: Case, codec: str) -> dict[str, Any]:
    """Two hosts of two ranks, encoded across."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, codec=codec, levels=(2,), **OPTIONS)
    case.loss(model, 0).backward()
    error = off(gradient(model), case.true_mean(0))
    case.train(model, range(1, 5))
    handle.close()
    return {"passed": case.equal(model) and error < MOST.get(codec, 4.0), "error": error}


def diloco(case: Case, how: str) -> dict[str, Any]:
    """Outer steps every three, streamed or whole."""
    model = case.network()
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kinds: dict[str, dict[str, Any]] = {"stream": {"delay": 1, "fragments": 2}, "whole": {"delay": 0, "fragments": 1}}
    optimizer = syncline.torch.DiLoCo(inner, model, every=3, codec="int8", timeout_s=40.0, **kinds[how])
    return _periodic(case, model, optimizer, 9)


def local_sgd(case: Case) -> dict[str, Any]:
    """Weights averaged every two steps."""
    model = case.network()
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"outer_lr": 1.0, "momentum": 0.0, "timeout_s": 40.0}
    return _periodic(case, model, syncline.torch.DiLoCo(inner, model, every=2, codec="int8", **options), 6)


def _periodic(case: Case, model: nn.Module, optimizer: Any, steps: int) -> dict[str, Any]:
    losses = case.train(model, range(steps), optimizer)
    optimizer.synchronize()
    same = case.equal(model)
    optimizer.close()
    return {"passed": same and losses[-1] < losses[0], "replicas_equal": same, "losses": [losses[0], losses[-1]]}


def crew(case: Case) -> dict[str, Any]:
    """DiLoCo over a crew."""
    model = case.network()
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made = syncline.torch.Crew(_store(), case.rank, case.size, name=f"crew{time.strftime('%H')}")
    optimizer = syncline.torch.DiLoCo(inner, model, every=3, codec="int8", crew=made, timeout_s=40.0, fragments=2)
    return {**_periodic(case, model, optimizer, 9), "history": made.history}


def elastic(case: Case) -> dict[str, Any]:
    """Every step over a crew."""
    model = case.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    made = syncline.torch.Crew(_store(), case.rank, case.size, name="elastic")
    handle = syncline.torch.elastic(model, optimizer, made, "int8", min_ranks=2, timeout_s=40.0, watch_s=10.0)
    case.train(model, range(6), optimizer)
    same = case.equal(model)
    handle.close()
    return {"passed": same}


def _store() -> Any:
    return dist.TCPStore(
        "127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False,
        timeout=datetime.timedelta(seconds=40),
    )  # fmt: skip


def sync_batch_norm(case: Case) -> dict[str, Any]:
    """Batch statistics of all ranks: what was learnt and what was counted are equal."""
    if case.device.type == "cpu":
        return {"passed": True, "said": "SyncBatchNorm needs a GPU"}
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Linear(WIDTH, 64))
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
    model = case.ddp(convert(layers.to(case.device)))
    handle = syncline.torch.synchronize(model, codec="int8", **OPTIONS)
    losses = case.train(model, range(6))
    same = case.equal(model)
    handle.close()
    return {"passed": same and losses[-1] < losses[0], "losses": [losses[0], losses[-1]]}


def scaler(case: Case) -> dict[str, Any]:
    """Mixed precision with a scale that overflows at first: every rank skips the same steps."""
    if case.device.type == "cpu":
        return {"passed": True, "said": "half precision is the GPU's"}
    model = case.ddp()
    grad_scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    handle = syncline.torch.synchronize(model, codec="int8", scaler=grad_scaler, **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = checksum(model)
    for step in range(40):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = case.loss(model, step)
        grad_scaler.scale(loss).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
    same, moved = case.equal(model), checksum(model) != first
    handle.close()
    return {"passed": same and moved and grad_scaler.get_scale() < 2.0**40, "scale": grad_scaler.get_scale()}


def auto(case: Case) -> dict[str, Any]:
    """What is chosen by measurement."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, timeout_s=40.0)
    case.train(model, range(60))
    same, why = case.equal(model), handle.why()
    handle.close()
    return {"passed": same, "why": why}


def transport(case: Case) -> dict[str, Any]:
    """The native wire, where the group is not NCCL's."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, codec="int8", **OPTIONS)
    losses = case.train(model, range(6))
    same, is_native = case.equal(model), bool(handle.lines())
    handle.close()
    return {"passed": same and losses[-1] < losses[0] and is_native}


def profile(case: Case, codec: str) -> dict[str, Any]:
    """Count where the host waits for the device inside two steps, thread by thread; the training thread never does."""
    model = case.ddp()
    handle = syncline.torch.synchronize(model, codec=codec, **{**OPTIONS, "piece_bytes": 4 << 20})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = [case.batch(step) for step in range(14)]

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(batches[number]).square().mean().backward()
        optimizer.step()

    for number in range(12):  # DDP itself waits for the device in its first ten steps, to note how long they took
        step(number)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if case.device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    dist.barrier()
    before = sum(len(bucket.pieces) for bucket in handle.program())
    with torch.profiler.profile(activities=kinds) as found:
        for number in (12, 13):
            with torch.profiler.record_function("training step"):
                step(number)
    path = case.out / f"trace-{codec.partition(':')[0]}.json"
    if case.rank == 0:
        found.export_chrome_trace(str(path))
    handle.close()
    dist.barrier()
    waits = _waits(path)
    dist.barrier()
    if case.rank == 0 and case.device.type == "cpu":
        path.unlink()
    return {"passed": waits["training thread"] == 0, **waits, "pieces_a_step": before, "steps": 2}


def _waits(path: Path) -> dict[str, Any]:
    events = json.loads(path.read_text())["traceEvents"]
    steps = [e for e in events if e.get("name") == "training step" and e.get("ph") == "X" and "tid" in e]
    threads = {e["tid"] for e in steps if e.get("cat") == "user_annotation"}
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in steps]
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for event in events:
        if event.get("name") in WAITS and any(low <= event["ts"] <= high for low, high in spans):
            counts[event["tid"] in threads][event["name"]] += 1
    return {"training thread": sum(counts[True].values()), "training thread's": dict(counts[True]),
            "communication threads'": dict(counts[False])}  # fmt: skip


def main() -> None:
    """Run the cases; an error on any rank is the case's, and ends this process when ranks may not agree any more."""
    cases, device, out = json.loads(sys.argv[1])
    faulthandler.enable()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=50))
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    case = Case(device, Path(out))
    for name in cases:
        kind, *words = name.split("/")
        began, work = time.monotonic(), globals()[kind]
        row = _tried(work, case, words)
        told: list[Any] = [None] * case.size
        dist.all_gather_object(told, row)
        worst = next((one for one in told if not one["passed"]), told[0])
        if case.rank == 0:
            print(json.dumps({"case": name, **worst, "seconds": round(time.monotonic() - began, 2)}), flush=True)
        if any("error" in one and isinstance(one["error"], str) for one in told):
            break


def _tried(work: Callable[..., dict[str, Any]], case: Case, words: list[str]) -> dict[str, Any]:
    try:
        return work(case, *words)
    except Exception as error:
        traceback.print_exc()
        where = "; ".join(
            f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-4:]
        )
        return {"passed": False, "error": f"{type(error).__name__}: {str(error)[:300]} ({where})"}


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
