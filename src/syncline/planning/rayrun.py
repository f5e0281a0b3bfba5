"""A search spread over a Ray cluster. Ray is an extra and is imported only here, when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from syncline.errors import PlanError
from syncline.planning.search import SearchResult, SearchTask, run_task

T = TypeVar("T")
R = TypeVar("R")
#: Tasks under way for each processor: enough that none waits for the next.
AHEAD = 2


def on_ray(**options: Any) -> Callable[[list[SearchTask]], Iterator[SearchResult]]:
    """Return a way to run the tasks of a plan's search on Ray: a cluster it is joined to, or a local one."""
    ray = imported()
    return lambda tasks: ray_tasks(ray, run_task, tasks, **options)


def imported() -> Any:
    """Return Ray, or raise with the extra that has it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise PlanError(
            "Ray is not installed.",
            detail="`on` ray spreads a search over a Ray cluster; everything else works without it.",
            hint='Install the extra: pip install "syncline[ray]".',
        ) from None


def ray_tasks(ray: Any, function: Callable[[T], R], tasks: Iterable[T], **options: Any) -> Iterator[R]:
    """Yield the results as they come. Tasks are taken as places fall free, so a late one can know early results."""
    if not ray.is_initialized():
        ray.init(**({"log_to_driver": False, "include_dashboard": False, "logging_level": "error"} | options))
    remote, left = ray.remote(function), iter(tasks)
    places = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = [remote.remote(task) for task in islice(left, places)]
    try:
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(done[0])
            waiting += [remote.remote(task) for task in islice(left, places - len(waiting))]
    except BaseException:
        for task in waiting:
            ray.cancel(task, force=True)
        raise
