"""What nccl-tests or rccl-tests printed, its table or its JSON, as measurements.

log = read_log(Path("all_reduce_perf.log"))
log.kind, log.num_ranks, log.rows[0].busbw_Bps
"""

from __future__ import annotations

from pathlib import Path

from syncline.bench.nccl_document import read_document
from syncline.bench.nccl_run import NcclTestRun
from syncline.bench.nccl_table import read_table
from syncline.errors import FileError
from syncline.schedule.collective import Kind

MAX_BYTES = 256 * 1024 * 1024


def read_log(path: Path, *, kind: Kind | None = None, num_ranks: int = 0) -> NcclTestRun:
    """Return the run that a file holds; `kind` and `num_ranks` where the log does not say them."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f'"{path}" is larger than {MAX_BYTES:,} bytes.', hint="Give one run's log.")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f'cannot read "{path}": {error.strerror}.') from None
    return parse(text, str(path), kind=kind, num_ranks=num_ranks)


def parse(text: str, where: str, *, kind: Kind | None = None, num_ranks: int = 0) -> NcclTestRun:
    """Return the run that a text holds."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith("{") or (stripped.startswith("[") and '"inPlace"' in stripped):
        return read_document(stripped, where, kind, num_ranks)
    return read_table(text, where, kind, num_ranks)
