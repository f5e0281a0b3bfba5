"""Written plans, executed with the framework's own training loop: ranks send and hold what is priced.

Skipped where the framework is not installed; `MEGATRON` is where Megatron-LM's pretrain_gpt.py lies.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from syncline.workload.read_job import load_job
from syncline.workload.zoo import shapes

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from rig.executed import captured, compared

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("framework", "package", "parallel"),
    [
        ("deepspeed", "deepspeed", {"zero": "2"}),
        ("torchtitan", "torchtitan", {"pp": 2, "zero": "3"}),
        ("megatron", "megatron.training", {"tp": 2, "zero": "1"}),
    ],
)
def test_executed_plans_do_what_is_priced(
    framework: str, package: str, parallel: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "MEGATRON" in os.environ:
        monkeypatch.syspath_prepend(os.environ["MEGATRON"])
    pytest.importorskip(package)
    job = load_job({
        "model": shapes()["llama3-8b"].model_copy(update={"layers": 8}), "parallel": parallel, "compiled": False,
        "batch": {"global": 32, "micro": 1, "sequence": 4096},
        "software": {"framework": "pytorch" if framework == "torchtitan" else framework},
    }).on(16)  # fmt: skip
    if framework == "torchtitan":
        job = job.model_copy(update={"gradient_bytes": 4})
    found = compared(job, captured(framework, job, tmp_path, sys.executable))
    for name, (measured, priced) in found.items():
        assert priced == pytest.approx(measured, rel=0.15 if name == "held" else 0.05), name
