"""Real processes for tests: torch is imported once, they meet over gloo on loopback and do what they are told."""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from syncline.host.ports import meeting_port

START_S = 600.0
# What every rank imports, sooner or later: torch's optimizers and DDP import its compiler when they are made.
PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "syncline.runtime.execute.executor",
    "syncline.runtime.sync.start",
    "syncline.runtime.sync.fsdp",
    "syncline.runtime.alive.checkpoint",
    "syncline.runtime.periodic.diloco",
]


def run_ranks(num_ranks: int, work: Callable[[int, int], Any], timeout_s: float = START_S) -> list[Any]:
    """Return what `work(rank, port)` returns on each of so many processes; a rank that dies or hangs is an error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    port = meeting_port()
    started = [rank_process(context, work, rank, port) for rank in range(num_ranks)]
    try:
        return [take(pipe, rank, timeout_s) for rank, (_, pipe) in enumerate(started)]
    finally:
        for process, _ in started:
            process.join(30)
            if process.is_alive():
                process.kill()


def run_script(
    script: Path, num_ranks: int, folder: Path, *words: str, settings: Mapping[str, str] | None = None
) -> str:
    """Run a training script on so many processes, told who they are as torchrun tells it; return what rank 0 printed.

    torchrun itself starts as many interpreters more, each of which imports torch for seconds.
    """
    printed: list[str] = run_ranks(num_ranks, partial(_script, script, num_ranks, folder, words, dict(settings or {})))
    return printed[0]


def rank_process(context: Any, work: Callable[..., Any], rank: int, port: int, *more: Any) -> tuple[Any, Any]:
    """Start `work(rank, port, ...)` as a process; return it, and the pipe through which its answer comes."""
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=_rank, args=(work, rank, port, end, *more), daemon=True)
    process.start()
    return process, pipe


def take(pipe: Any, rank: int, timeout_s: float) -> Any:
    """Return what a rank answered; silence and errors of the rank are errors here."""
    if not pipe.poll(timeout_s):
        raise TimeoutError(f"rank {rank} said nothing for {timeout_s} s")
    kind, value = pipe.recv()
    if kind == "error":
        raise AssertionError(f"rank {rank}:\n{value}")
    return value


def _rank(work: Callable[..., Any], rank: int, port: int, pipe: Any, *more: Any) -> None:
    gc.freeze()  # what was imported stays: a rank looked through all of torch for rings, again and again
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch

    torch.set_num_threads(1)
    try:
        pipe.send(("value", work(rank, port, *more)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    pipe.close()


def _script(
    script: Path, num_ranks: int, folder: Path, words: tuple[str, ...], settings: dict[str, str], rank: int, port: int
) -> str:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
    sizes = {"WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks}
    os.environ |= {name: str(value) for name, value in {**meeting, **sizes, **settings}.items()}
    os.chdir(folder)
    sys.argv = [str(script), *words]
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()
