"""A user's training script as processes: one, which starts its own ranks, or several that are the ranks of one job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncline.errors import UsageError
from syncline.host.ports import meeting_port

STDERR = 2
"""Where the script's own output goes: stdout is the answer's."""
POLL_S = 0.2
GRACE_S = 10.0


def run_until(command: list[str], local: int | None, timeout_s: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what the script's ranks learned; they are stopped once it is there."""
    if shutil.which(command[0]) is None:
        raise UsageError(
            f'"{command[0]}" is not a command on this host.', hint="Give what starts the training, after --."
        )
    with tempfile.TemporaryDirectory(prefix="syncline-tune-") as folder:
        answer = Path(folder) / "learned.json"
        ranks = _start(command, local, answer)
        try:
            return _await(ranks, answer, timeout_s, tell)
        finally:
            _stop(ranks)


def _start(command: list[str], local: int | None, answer: Path) -> list[subprocess.Popen[bytes]]:
    shared = {**os.environ, "SYNCLINE_TUNE": str(answer)}
    shared.pop("SYNCLINE_SETTINGS", None)
    if local is None:
        return [subprocess.Popen(command, env=shared, stdout=STDERR)]  # noqa: S603 - the user's own
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting_port())}
    shared |= {"WORLD_SIZE": str(local), "LOCAL_WORLD_SIZE": str(local)}
    ranks = []
    for rank in range(local):
        own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen(command, env=own, stdout=STDERR))  # noqa: S603 - the user's own
    return ranks


def _await(
    ranks: list[subprocess.Popen[bytes]], answer: Path, timeout_s: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    end, said = time.monotonic() + timeout_s, ""
    while True:
        over = all(rank.poll() is not None for rank in ranks)
        failed = next((rank.returncode for rank in ranks if rank.poll() not in (None, 0)), 0)
        found = _read(answer)
        if found is not None and found["phase"] != said:
            said = found["phase"]
            tell(f"step {found['steps']}: {said}; {found['why']}")
        if found is not None and found["phase"] == "hold":
            return found
        if failed or over:
            raise _ended(failed, found)
        if time.monotonic() > end:
            raise UsageError(
                f"there was no answer in {timeout_s:g} s.",
                detail=f"Its last message: {said or 'nothing'}.",
                hint="Does the script call syncline.torch.synchronize? Give more time with --timeout.",
            )
        time.sleep(POLL_S)


def _ended(status: int, found: Mapping[str, Any] | None) -> UsageError:
    if status:
        return UsageError(f"the command failed with status {status}.", hint="Its own messages are above.")
    if found is None:
        return UsageError(
            "the command ended and nothing was measured.",
            hint="It must call syncline.torch.synchronize on a DDP model and train at least forty steps.",
        )
    return UsageError(
        f"the command ended after {found['steps']} steps, before a choice was made.",
        hint="Let it train at least forty steps.",
    )


def _read(answer: Path) -> dict[str, Any] | None:
    if not answer.exists():
        return None
    found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    return found


def _stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    """End what is still running: asked first, then made to."""
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    for rank in ranks:
        try:
            rank.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
