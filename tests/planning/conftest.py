"""Questions that several tests ask."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.fabric import load
from syncline.planning.answer import ask
from syncline.planning.block import PlanQuestion
from syncline.workload.read_job import load_job


@pytest.fixture(scope="session")
def asked() -> Any:
    """Return a function that asks about a model on a preset."""

    def ask_about(
        cluster: str = "h100-64-rail", model: str = "llama3-70b", total: int = 1024, sequence: int = 8192, **job: Any
    ) -> tuple[PlanQuestion, int]:
        described = load_job({"model": model, "batch": {"global": total, "sequence": sequence}, **job})
        return ask(load(cluster), described)

    return ask_about
