"""Schedule files by their ending: .json is syncline's own format, .xml is MSCCL's."""

from __future__ import annotations

from pathlib import Path

from syncline.errors import FileError, ScheduleError
from syncline.schedule.exchange import json_file
from syncline.schedule.exchange.msccl_read import read_msccl
from syncline.schedule.exchange.msccl_write import write_msccl
from syncline.schedule.schedule import Schedule

ENDINGS = (".json", ".xml")


def is_file(what: str) -> bool:
    """Whether this names a schedule file rather than a family."""
    return Path(what).suffix.lower() in ENDINGS


def read(path: Path) -> Schedule:
    """Read a schedule file."""
    ending = _ending(path)
    try:
        if path.stat().st_size > json_file.MAX_BYTES:
            raise FileError(f'"{path}" is larger than the {json_file.MAX_BYTES:,} bytes a schedule may have.')
        text = path.read_bytes()
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.') from None
    return json_file.loads(text, path.name) if ending == ".json" else read_msccl(text, path.name)


def write(schedule: Schedule, path: Path, *, protocol: str = "Simple") -> None:
    """Write a schedule file."""
    ending = _ending(path)
    write_text(path, json_file.dumps(schedule) if ending == ".json" else write_msccl(schedule, protocol=protocol))


def write_text(path: Path, text: str) -> None:
    """Write text to a file, or say why not."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror}.') from None


def _ending(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ScheduleError(f'"{path}" is neither {" nor ".join(ENDINGS)}.')
    return ending
