"""A search spread over a Ray cluster. Ray is an extra and is imported only here, when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from syncline.errors import PlanError
from syncline.plan.search import SearchResult, Task, run_task


def on_ray(**options: Any) -> Callable[[list[Task]], Iterator[SearchResult]]:
    """Return a way to run the tasks of a search on Ray: a cluster it is joined to, or a local one."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise PlanError(
            "Ray is not installed.",
            detail="--on ray spreads a search over a Ray cluster; everything else works without it.",
            hint='Install the extra: pip install "syncline[ray]".',
        ) from None

    def run(tasks: list[Task]) -> Iterator[SearchResult]:
        if not ray.is_initialized():
            ray.init(**({"log_to_driver": False, "include_dashboard": False} | options))
        remote = ray.remote(run_task)
        waiting = [remote.remote(task) for task in tasks]
        try:
            while waiting:
                done, waiting = ray.wait(waiting, num_returns=1)
                yield ray.get(done[0])
        except BaseException:
            for task in waiting:
                ray.cancel(task, force=True)
            raise

    return run
