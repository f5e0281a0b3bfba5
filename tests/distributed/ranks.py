"""Real processes for tests: torch is imported once, they meet over gloo on loopback and do what they are told."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

START_S = 120.0


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run_ranks(num_ranks: int, work: Callable[[int, int], Any], timeout_s: float = START_S) -> list[Any]:
    """Return what `work(rank, port)` returns on each of so many processes; a rank that dies or hangs is an error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "syncline.runtime.executor", "syncline.torch"])
    port = free_port()
    pipes = [context.Pipe(duplex=False) for _ in range(num_ranks)]
    processes = [
        context.Process(target=_rank, args=(work, rank, port, pipes[rank][1]), daemon=True) for rank in range(num_ranks)
    ]
    for process in processes:
        process.start()
    try:
        return [_take(pipe, rank, timeout_s) for rank, (pipe, _) in enumerate(pipes)]
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()


def _take(pipe: Any, rank: int, timeout_s: float) -> Any:
    if not pipe.poll(timeout_s):
        raise TimeoutError(f"rank {rank} said nothing for {timeout_s} s")
    kind, value = pipe.recv()
    if kind == "error":
        raise AssertionError(f"rank {rank}:\n{value}")
    return value


def _rank(work: Callable[[int, int], Any], rank: int, port: int, pipe: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch

    torch.set_num_threads(1)
    try:
        pipe.send(("value", work(rank, port)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    pipe.close()
