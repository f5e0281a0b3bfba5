"""One rank of a script on tensors without contents: what it launches, holds and sends is written down."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from syncline.previewing.capture import (
    codecs,
    cuda,
    device,
    fence,
    fused,
    launched,
    quick,
    script,
    sharding,
    stages,
    triton,
    values,
    world,
)
from syncline.previewing.capture.log import Log, is_own
from syncline.previewing.capture.memory import StorageLedger
from syncline.previewing.capture.memory import prepare as follow
from syncline.previewing.capture.recorder import Recorder

with contextlib.suppress(Exception):  # it scripts functions, which nothing does later, nor with PYTORCH_JIT=0
    importlib.import_module("torch._decomp.decompositions_for_jvp")
_KIND: Any = FakeTensorMode
_KIND.__deepcopy__ = lambda mode, _: mode  # a copied tensor stays in its mode: no other one is recorded
_FAKE = FakeTensorMode(allow_non_fake_inputs=True)  # before torch is told of a GPU: making one imports the compiler


def run(spec: dict[str, Any], *, cut_off: bool, layered: bool) -> NoReturn:
    """Run the script that the spec names; the answer is a file, the exit code is 0 whatever the script does."""
    out = Path(spec["out"])
    log = Log()
    memory = StorageLedger(log)
    log.facts.update(torch=torch.__version__, rank=int(os.environ["RANK"]), world=int(os.environ["WORLD_SIZE"]))
    log.facts.update(command=spec["command"], env=spec["env"])  # for `own`, which runs it on a real device
    log.facts.update(device=spec["device"], steps=int(spec["steps"]), alone=spec["alone"], given=spec["given"])

    def done(status: str = "ok", error: str = "") -> NoReturn:
        log.write(out, status, error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # nothing of the script's own ending is wanted: no upload, no checkpoint, no wait for a thread

    device.unnumbered()
    if spec["device"] == "cuda":
        device.prepare()
        cuda.prepare(log, spec["gpu"], int(os.environ["LOCAL_RANK"]), int(spec["gpus"]), memory)
    else:
        cuda.absent(log)
    quick.prepare()
    collectives = world.Collectives(log)

    def sized(ranks: int) -> None:
        if spec["alone"] and ranks > 1:
            done("world", str(ranks))

    backend = "nccl" if spec["device"] == "cuda" else "gloo"
    world.prepare(collectives, backend, int(spec.get("bucket_bytes", 0)), sized)
    sharding.prepare(log, hybrid=bool(spec.get("hybrid")))
    launched.spawned(sized)
    launched.one_gpu()
    follow(memory)
    if not cut_off:
        log.note("the kernel gives this user no network of its own: connections are refused in Python only")
    if spec["read_only"] and not layered:
        log.note("the kernel gives this user no layer over files: what the script writes stays")
    fence.prepare(log)
    recorder = Recorder(log, memory, collectives, _FAKE, spec["device"])
    collectives.where = recorder.where
    values.prepare(log, recorder.synced)

    def heard() -> None:
        log.write_early(Path(spec["early"]))

    def begun(step: int) -> None:
        Path(spec["step"]).write_text(str(step))
        if step == 2:
            heard()

    steps = script.StepCounter(log, recorder, memory, int(spec["steps"]), begun, done)
    steps.prepare()
    collectives.arrived = steps.received
    script.compiled(recorder, log)
    stages.prepare(log, spec.get("stages", {}), heard)
    triton.prepare(log, recorder.custom)
    codecs.prepare(log)
    script.moved_modules(memory)
    script.shapes_only(recorder)
    fused.prepare(log)
    script.unprofiled()
    script.backwards(recorder)
    if spec["alone"]:
        launched.unlaunched(spec["given"])
    try:
        with _FAKE, recorder, script.Functions():
            script.run(spec["command"])
    except SystemExit as stopped:
        if stopped.code not in (None, 0) and not steps.stepped:
            done("own", f"the script exited with {stopped.code!r}")
    except BaseException as error:
        done(*_words(error))
    done()


def _words(error: BaseException) -> tuple[str, str]:
    """Return what kind of error it is, the last line of its traceback and where in the script it was."""
    traceback.print_exception(error)
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError):  # its place comes first
        lines = lines[-1:]
    last = " ".join(map(str.strip, lines[: 2 if lines[0].endswith(":") else 1]))  # a colon says that the reason follows
    here = str(Path(__file__).parent)
    frames: list[Any] = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((here, "<"))]
    own = [f for f in frames if is_own(f.filename)]
    place = own[-1] if own else frames[-1] if frames else None
    kind = "own"
    if isinstance(error, ImportError):
        kind = "missing"
    elif isinstance(error, OSError):  # a file or a hub: those of Hugging Face's and requests' errors are of that class
        kind = "data"
    elif frames and f"{os.sep}torch{os.sep}" in frames[-1].filename:
        kind = "crashed"
    return kind, f"{last[:300]}\n{place.filename}:{place.lineno}" if place else last[:300]
