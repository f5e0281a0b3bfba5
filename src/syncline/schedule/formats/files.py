"""Schedule files by their ending: .json is syncline's own format, .xml is MSCCL's."""

from __future__ import annotations

from pathlib import Path

from syncline.describe.files import write_text
from syncline.errors import FileError, ScheduleError
from syncline.schedule.formats import json_file
from syncline.schedule.formats.msccl_read import read_msccl
from syncline.schedule.formats.msccl_write import write_msccl
from syncline.schedule.schedule import Schedule

ENDINGS = (".json", ".xml")


def is_file(what: str) -> bool:
    """Whether this names a schedule file rather than a family."""
    return Path(what).suffix.lower() in ENDINGS


def read(path: Path) -> Schedule:
    """Read a schedule file."""
    ending = ending_of(path)
    try:
        if path.stat().st_size > json_file.MAX_BYTES:
            raise FileError(f'"{path}" is larger than the {json_file.MAX_BYTES:,} bytes a schedule may have.',
                            hint="Name the family instead, with its number of ranks.")  # fmt: skip
        text = path.read_bytes()
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.', hint="Check the name and the folder.") from None
    return json_file.loads(text, path.name) if ending == ".json" else read_msccl(text, path.name)


def write(schedule: Schedule, path: Path, *, protocol: str = "Simple") -> None:
    """Write a schedule file."""
    ending = ending_of(path)
    write_text(path, json_file.dumps(schedule) if ending == ".json" else write_msccl(schedule, protocol=protocol))


def ending_of(path: Path) -> str:
    """Return the ending of a schedule file, which says its format; refuse any other."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ScheduleError(f'"{path}" is neither {" nor ".join(ENDINGS)}.',
                            hint="The ending says the format: .json is syncline's, .xml is MSCCL's.")  # fmt: skip
    return ending
