"""Ranks are forks of one process that has imported torch in their environment, and end when nobody waits for them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import syncline
from syncline.previewing import child

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


def running(words: list[str]) -> bool:
    """Return whether a process with this command line exists."""
    wanted = b"".join(word.encode() + b"\0" for word in words)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # gone
            if path.read_bytes() == wanted:
                return True
    return False


def test_a_rank_ends_with_what_it_started_when_the_preview_is_killed(tmp_path: Path) -> None:
    script, sleeps = tmp_path / "train.py", ["sleep", f"300.{os.getpid()}"]
    script.write_text(f"import subprocess\nsubprocess.run({sleeps})")
    command = ["torchrun", "--nproc-per-node", "8", str(script)]
    asks = f"import syncline\nsyncline.preview('h100-64-rail', {command}, what_if=[])"
    with subprocess.Popen([sys.executable, "-c", asks]) as preview:
        wait_until(lambda: running(sleeps))
        preview.kill()
    wait_until(lambda: not running(sleeps))


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.1)
