"""syncline's own gradient synchronisation inside a preview: its codec is written down, gradients have no contents."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from syncline.codec.names import PLAIN, canonical
from syncline.previewing.capture.log import Log

AUTO = "auto"
UNMEASURED = "int8"
"""What `codec="auto"` begins with where nothing can be measured."""


class _Handle:
    """What `syncline.torch.synchronize` returns: it answers, and does nothing."""

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: ""


def prepare(log: Log) -> None:
    """Let DDP and FSDP2 reduce as they do, and note in what form gradients would travel."""
    face = import_module("syncline.torch")  # as the script would: what is replaced is what it calls

    def synchronize(model: Any, codec: str = AUTO, *, replicas: Any = None, **options: Any) -> _Handle:
        name = codec
        if codec == AUTO:
            name = UNMEASURED
            log.stand_in("syncline's codec, which a run finds by measurement", name)
        log.facts["codec"] = canonical(name)
        log.facts["codec_over"] = "all_reduce" if replicas is not None else ""
        if canonical(name) != PLAIN:
            log.note(f"syncline.torch: gradients travel in {canonical(name)}, encoded and decoded at the memory's rate")
        return _Handle()

    vars(face)["synchronize"] = synchronize
