"""One rank of a script in a process of its own: bounded in time and memory, cut off from networks and hubs."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from syncline.describe.files import make_folder
from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.errors import SimulationError
from syncline.fabric.catalog import Gpu
from syncline.previewing.capture.apart import rank_name
from syncline.previewing.launch import ScriptLaunch
from syncline.previewing.record import STEPS, Capture, read_capture
from syncline.sim.step.machine import facts_of

QUIET = {
    "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
    "DS_ACCELERATOR": "cuda", "HF_HUB_DISABLE_TELEMETRY": "1", "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1",
}  # fmt: skip
CAPABILITY = {
    "Pascal": (6, 0), "Volta": (7, 0), "Turing": (7, 5), "Ampere": (8, 0), "Ada": (8, 9), "Hopper": (9, 0),
    "Blackwell": (10, 0), "Blackwell Ultra": (10, 3),
}  # fmt: skip
MARK = "SYNCLINE_PREVIEW_FOLDER"
"""Of all that a rank starts: also a process that has left its session is found and ended. This variable names what was
started as another program, the process's name its forks, and the rank's network, which it cannot leave, what has
cleared its environment."""
HINTS = {
    "missing": "Install what the script imports into the Python that runs syncline.",
    "data": "A preview has no network: put what the script downloads (weights, data) where it looks first.",
    "own": "The script or a library raised this. Values read from tensors are stand-ins; run it alone to compare.",
    "crashed": "Where the script is right, the preview lacks something: report it with this line.",
}
TRIES, TRY_S = 100, 0.02
MOST_ANSWER = 64
"""Bytes of a number that a rank's parent sends."""


class PreviewError(SimulationError):
    """A script that could not be captured: it crashed, hung, or trained no step."""


class OtherWorldError(PreviewError):
    """A script that python started alone makes a world of its own: it is to be run again as one rank of that."""

    def __init__(self, world: int) -> None:
        super().__init__(f"the script makes a world of {world:,} ranks.")
        self.world = world


class RankProcess:
    """A rank that is being run. Poll it until it has ended, ask for its capture, close it on every path."""

    def __init__(
        self,
        launch: ScriptLaunch,
        rank: int,
        gpu: Gpu,
        *,
        timeout_s: float,
        memory_bytes: int,
        stages: JsonObject | None = None,
        bucket_bytes: int = 0,
        device: str = "cuda",
        steps: int = STEPS,
        read_only: bool = True,
        hybrid: bool = False,
    ) -> None:
        """Start a rank; `stages` holds the shapes that pipeline stages run before it pass on."""
        self.rank, self._script, self._timeout_s = rank, launch.script, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="syncline-preview-")
        folder = Path(self._folder.name)
        self._out, self._early, self._log = folder / f"rank{rank}.json", folder / "early.json", folder / "log.txt"
        self._step, spec = folder / "step", folder / "spec.json"
        command = {"script": launch.script, "module": launch.module, "args": list(launch.args)}
        spec.write_text(
            json.dumps(
                {
                    "out": str(self._out),
                    "early": str(self._early),
                    "step": str(self._step),
                    "steps": steps,
                    "env": launch.of_rank(rank),
                    "gpu": _described(gpu),
                    "command": command,
                    "stages": stages or {},
                    "bucket_bytes": bucket_bytes,
                    "device": device,
                    "read_only": read_only,
                    "hybrid": hybrid,
                    "gpus": launch.visible_gpus,
                    "alone": launch.launcher == "python" and launch.world == 1,
                    "given": launch.environment,
                }
            )
        )
        self._rank = _start(spec, self._log, memory_bytes, launch.environment)
        self._network = _NO_NETWORK
        self._until_s = time.monotonic() + timeout_s

    def ended(self) -> bool:
        """Return whether the rank has ended; one that takes too long is ended with an error."""
        if self._network == _NO_NETWORK:
            self._network = _network_of(self._rank.pid)
        if self._rank.status() is not None:
            return True
        if time.monotonic() > self._until_s:
            raise PreviewError(
                f"{self._script} did not finish {STEPS} training steps within {self._timeout_s:g} s.",
                detail=_last(self._output()),
                hint="Give it longer with --timeout, or fewer layers.",
            )
        return False

    def step(self) -> int:
        """Return the step that has begun; 0 before the first."""
        return int(self._step.read_text() or 0) if self._step.is_file() else 0

    def early(self) -> EarlyWord | None:
        """Return what is known by now of the ranks that it talks to; None where nothing is."""
        if not self._early.is_file():
            return None
        early = json.loads(self._early.read_text())
        return EarlyWord(tuple(early["peers"]), early["stages"])

    def capture(self, keep: Path | None = None) -> Capture:
        """Return what the rank did, or raise with the script's own last words."""
        ended, output = self._rank.status(wait=True) or 0, self._output()
        if ended < 0:
            raise PreviewError(
                f"rank {self.rank} of {self._script} was ended by {signal.Signals(-ended).name}.",
                detail=_last(output.partition("Fatal Python error")[0]),
                hint="Native code that reads tensors crashes on tensors without contents; --memory bounds the process.",
            )
        if not self._out.is_file():
            if "No module named 'torch'" in output:
                raise PreviewError(
                    f"{self._script} needs PyTorch, which is not installed for the Python that ran it.",
                    hint='Install it there: pip install "syncline[torch]"',
                )
            raise PreviewError(
                f"{self._script} ended before its first training step on rank {self.rank}.",
                detail=_last(output),
                hint="Run the script by itself to see what it prints.",
            )
        status = json.loads(self._out.read_text())
        if status["status"] == "world":
            raise OtherWorldError(int(status["error"]))
        if status["status"] in HINTS:
            error, _, place = status["error"].partition("\n")
            raise PreviewError(
                f"rank {self.rank} of {self._script} crashed: {error}",
                where=place,
                detail=_last(output) if "the script exited" in error else "",
                hint=HINTS[status["status"]],
            )
        if keep is not None:
            make_folder(keep)
            (keep / self._out.name).write_bytes(self._out.read_bytes())
        found = read_capture(self._out)
        trained = any(op.phase == "optimizer" for op in found.ops)
        if not trained and "optimizer" in found.facts:
            raise PreviewError(
                f"{self._script} trains on the processor: its parameters are on no GPU.",
                hint="Preview it there with --cpu --measure, or move the model: model.cuda().",
            )
        if not trained:
            raise PreviewError(
                f"rank {self.rank} of {self._script} ended before an optimizer stepped.",
                detail=_last(output),
                hint="A preview needs one whole training step.",
            )
        return found

    def close(self) -> None:
        """End the rank and all that it started."""
        with contextlib.suppress(ProcessLookupError):  # nothing of the session is left
            os.killpg(self._rank.pid, signal.SIGKILL)
        self._rank.status(wait=True)
        _end_all(self._folder.name, self._network)
        if self._network != _NO_NETWORK:
            os.close(self._network)
            self._network = _NO_NETWORK
        self._folder.cleanup()

    def _output(self) -> str:
        return self._log.read_text(errors="replace")


_NO_NETWORK = -1


def _network_of(pid: int) -> int:
    """Return a rank's own network, opened: its number is not given to another one while it is; or none yet."""
    with contextlib.suppress(OSError):
        found = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        if os.fstat(found).st_ino != os.stat("/proc/self/ns/net").st_ino:
            return found
        os.close(found)
    return _NO_NETWORK


def _end_all(folder: str, network: int) -> None:
    """End what a rank has started and what has left its session; return when nothing of it is left."""
    mark, name = f"{MARK}={folder}".encode(), rank_name(Path(folder))
    number = os.fstat(network).st_ino if network != _NO_NETWORK else 0
    for _ in range(TRIES):
        running = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        left = [pid for pid in running if mark in _environment(pid) or _name(pid) == name or _is_in(pid, number)]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(TRY_S)


def _environment(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):  # another user's, or gone
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):  # gone
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


def _is_in(pid: int, network: int) -> bool:
    with contextlib.suppress(OSError):  # another user's, or gone
        return os.stat(f"/proc/{pid}/ns/net").st_ino == network
    return False


class EarlyWord(NamedTuple):
    """What a rank tells about others: whom it sends to or receives from, and what its stages pass on."""

    peers: tuple[int, ...]
    stages: JsonObject


class _Fork:
    """A rank, forked from a process that has imported torch: its number, and its exit status once it has ended."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid, self._answers = pid, answers
        self._status: int | None = None

    def status(self, *, wait: bool = False) -> int | None:
        """Return the exit status, negative where a signal ended it, or None while the rank runs."""
        if self._status is None and (wait or select.select([self._answers], [], [], 0)[0]):
            self._status = int(self._answers.recv(MOST_ANSWER) or -signal.SIGKILL)  # or its parent was killed
            self._answers.close()
        return self._status


class _Imported:
    """A process that has imported torch, in one environment and folder; ranks of later previews fork from it too."""

    def __init__(self, environment: dict[str, str], folder: str) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "syncline.previewing.capture", str(theirs.fileno())],
                env=environment, cwd=folder, pass_fds=[theirs.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def runs(self) -> bool:
        return self._process.poll() is None

    def fork(self, spec: Path, log: Path, memory_bytes: int) -> _Fork:
        own = {"spec": str(spec), "log": str(log), "memory_bytes": memory_bytes, "mark": {MARK: str(spec.parent)}}
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._door, [json.dumps(own).encode()], [theirs.fileno()])
        if pid := mine.recv(MOST_ANSWER):
            return _Fork(int(pid), mine)
        mine.close()
        raise PreviewError(
            f"the process that imports torch ended with status {self._process.wait()}.",
            hint=f'Does `{sys.executable} -c "import torch"` work here?',
        )

    def leave(self) -> None:
        """Ask for no more ranks: it goes when the last of them has ended."""
        self._door.close()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def end(self) -> None:
        """End it: this process goes."""
        self._door.close()
        self._process.kill()
        self._process.wait()


_IMPORTED: dict[tuple[str, ...], _Imported] = {}
_ONE_AT_A_TIME = threading.Lock()


def _start(spec: Path, log: Path, memory_bytes: int, given: dict[str, str]) -> _Fork:
    """Fork a rank from a process that imported torch in this environment, folder and with the variables `given`."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment, folder = {**os.environ, **QUIET, "PYTHONPATH": path, **given}, os.getcwd()
    made_in = (folder, *itertools.chain.from_iterable(sorted(environment.items())))
    with _ONE_AT_A_TIME:
        for other, imported in [*_IMPORTED.items()]:
            if other != made_in or not imported.runs():
                _IMPORTED.pop(other).leave()
        if made_in not in _IMPORTED:
            _IMPORTED[made_in] = _Imported(environment, folder)
        return _IMPORTED[made_in].fork(spec, log, memory_bytes)


@atexit.register
def _end_all_imported() -> None:
    while _IMPORTED:
        _IMPORTED.popitem()[1].end()


def time_kernels(
    folder: Path, out: Path, timeout_s: float, tell: Callable[[str], None] = lambda _: None, ranks: int = 1
) -> None:
    """Time the kernels of the captures in a folder on this machine's GPU, in a process of its own.

    On CPUs as many `ranks` run the script at once, which share the cores.
    """
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "syncline.previewing.capture.measure", str(folder), str(out), str(ranks)]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as complaints,
        subprocess.Popen(  # noqa: S603 - our own module
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=complaints, text=True, errors="replace", start_new_session=True,
        ) as timing,
    ):  # fmt: skip

        def end() -> None:
            with contextlib.suppress(ProcessLookupError):  # with the ranks that it runs
                os.killpg(timing.pid, signal.SIGKILL)

        limit = threading.Timer(timeout_s, end)
        limit.start()
        try:
            for line in timing.stdout or ():
                tell(line.strip())
            timing.wait()
        finally:
            is_late = not limit.is_alive()
            limit.cancel()
            end()
        complaints.seek(0)
        output = complaints.read()
    if is_late:
        raise PreviewError(f"the kernels were not timed within {timeout_s:g} s.", hint="Give it longer with --timeout.")
    if timing.returncode or not out.is_file():
        raise PreviewError(
            "the kernels could not be timed on this machine.",
            detail=_last(output),
            hint=f"Time them where there is a GPU ({cite('preview')}), and give the file to --measured.",
        )


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if any(map(str.isalnum, line))]  # not the frame around an error
    return f"It last said: {lines[-1].strip(' │')[:200]}" if lines else "It printed nothing."


def _described(gpu: Gpu) -> JsonObject:
    major, minor = CAPABILITY.get(gpu.architecture, (9, 0))
    return {
        "name": gpu.name,
        "memory_bytes": int(gpu.memory_bytes),
        "major": major,
        "minor": minor,
        "sms": int(facts_of(gpu)["sms"]),
    }
