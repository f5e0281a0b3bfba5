"""One rank of a script in a process of its own: bounded in time and memory, cut off from networks and hubs."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from syncline.describe.plain import JsonObject
from syncline.errors import SimulationError
from syncline.fabric.catalog import Gpu
from syncline.preview.launch import Launch
from syncline.preview.record import STEPS, Capture, read_capture
from syncline.sim.step.machine import facts_of

QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DS_ACCELERATOR": "cuda",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
}
CAPABILITY = {
    "Volta": (7, 0),
    "Turing": (7, 5),
    "Ampere": (8, 0),
    "Ada": (8, 9),
    "Hopper": (9, 0),
    "Blackwell": (10, 0),
    "Blackwell Ultra": (10, 3),
    "Pascal": (6, 0),
}


class PreviewError(SimulationError):
    """A script that could not be captured: it crashed, hung, or trained no step."""


def capture(
    launch: Launch,
    rank: int,
    gpu: Gpu,
    *,
    timeout_s: float,
    memory_bytes: int,
    keep: Path | None = None,
    stages: JsonObject | None = None,
) -> Capture:
    """Return what a rank of a script did, or raise with the script's own last words.

    `stages` holds the shapes that pipeline stages run before it pass on.
    """
    with tempfile.TemporaryDirectory(prefix="syncline-preview-") as folder:
        out = Path(folder) / f"rank{rank}.json"
        spec = Path(folder) / "spec.json"
        command = {"script": launch.script, "module": launch.module, "args": list(launch.args)}
        spec.write_text(
            json.dumps(
                {
                    "out": str(out),
                    "steps": STEPS,
                    "env": launch.of_rank(rank),
                    "gpu": _described(gpu),
                    "command": command,
                    "stages": stages or {},
                }
            )
        )
        said, ended = _run(spec, timeout_s, memory_bytes, launch.script)
        if ended < 0:
            raise PreviewError(
                f"rank {rank} of {launch.script} was ended by {signal.Signals(-ended).name}.",
                detail=_last(said.partition("Fatal Python error")[0]),
                hint="Native code that reads tensors crashes on tensors without contents; --memory bounds the process.",
            )
        if not out.is_file():
            raise PreviewError(
                f"{launch.script} ended without a word on rank {rank}.",
                detail=_last(said),
                hint='Install it there: pip install "syncline[torch]"'
                if "No module named 'torch'" in said
                else "Run the script by itself to see what it prints.",
            )
        status = json.loads(out.read_text())
        if status["status"] == "crashed":
            error, _, place = status["error"].partition("\n")
            raise PreviewError(
                f"rank {rank} of {launch.script} crashed: {error}",
                where=place,
                detail=_last(said) if "the script exited" in error else "",
                hint="Where the script is right, the preview lacks something: report it with this line.",
            )
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / out.name).write_bytes(out.read_bytes())
        found = read_capture(out)
    if not any(op.phase == "optimizer" for op in found.ops):
        raise PreviewError(
            f"rank {rank} of {launch.script} ended before an optimizer stepped.",
            detail=_last(said),
            hint="A preview needs one whole training step.",
        )
    return found


def _run(spec: Path, timeout_s: float, memory_bytes: int, script: str) -> tuple[str, int]:
    """Run the child; return what it printed and how it ended. What it started ends with it."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **QUIET, "PYTHONPATH": path}
    log = spec.with_name("log.txt")

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    with log.open("wb") as stream:
        child = subprocess.Popen(  # noqa: S603 - the user's own script
            [sys.executable, "-m", "syncline.preview.capture", str(spec)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=bounded,
        )
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise PreviewError(
                f"{script} did not finish {STEPS} training steps within {timeout_s:g} s.",
                detail=_last(log.read_text(errors="replace")),
                hint="Give it longer with --timeout, or fewer layers.",
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of the session is left
                os.killpg(child.pid, signal.SIGKILL)
    return log.read_text(errors="replace"), child.returncode


def time_kernels(folder: Path, out: Path, timeout_s: float) -> None:
    """Time the kernels of the captures in a folder on this machine's GPU, in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "syncline.preview.capture.measure", str(folder), str(out)]
    try:
        ran = subprocess.run(  # noqa: S603 - our own module
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise PreviewError(
            f"the kernels were not timed within {timeout_s:g} s.", hint="Give it longer with --timeout."
        ) from None
    if ran.returncode or not out.is_file():
        raise PreviewError(
            "the kernels could not be timed on this machine.",
            detail=_last(ran.stderr),
            hint="Time them where there is a GPU (docs/guides/preview.md), and give the file to --measured.",
        )


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return f"It last said: {lines[-1][:200]}" if lines else "It printed nothing."


def _described(gpu: Gpu) -> JsonObject:
    major, minor = CAPABILITY.get(gpu.architecture, (9, 0))
    return {
        "name": gpu.name,
        "memory_bytes": int(gpu.memory_bytes),
        "major": major,
        "minor": minor,
        "sms": int(facts_of(gpu)["sms"]),
    }
