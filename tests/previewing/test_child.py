"""Ranks are forks of one process that has imported torch in their environment, and end when nobody waits for them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import syncline
from syncline.fabric.catalog import load_catalog
from syncline.previewing import child
from syncline.previewing.launch import read_launch

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")


def told(folder: Path, expression: str, *given: str) -> str:
    """Return what an expression is inside of a previewed script."""
    script = folder / "train.py"
    script.write_text(f"import os, torch\nraise RuntimeError({expression})")
    with pytest.raises(child.PreviewError) as raised:
        syncline.preview("h100-64-rail", [*given, "torchrun", "--nproc-per-node", "8", str(script)], what_if=[])
    found = re.search(r"RuntimeError: (.*)", str(raised.value))
    assert found is not None, str(raised.value)
    return found[1]


def test_the_next_preview_forks_from_the_same_process(tmp_path: Path) -> None:
    first, second = (told(tmp_path, "f'{os.getppid()} {os.getpid()}'").split() for _ in range(2))
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_what_torch_reads_when_it_is_imported_holds(tmp_path: Path) -> None:
    state = "torch.jit._state._enabled.enabled"
    assert [told(tmp_path, state, *given) for given in ((), ("PYTORCH_JIT=0",))] == ["True", "False"]


def test_a_rank_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(300)")
    launch = read_launch(["python", str(script)], 8)
    rank = child.RankProcess(launch, 0, load_catalog().gpu("H100-SXM5"), timeout_s=60, memory_bytes=1 << 40)
    stat = Path("/proc", str(rank._rank.pid), "stat")
    assert stat.exists()
    rank._rank._answers.close()  # as when the previewing process is killed
    until_s = time.monotonic() + 30
    while stat.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    left, rank._rank._status = stat.exists(), -9
    rank.close()
    assert not left
