"""Columns of a table of collectives however their writer called them: "Ranks", "Size (MB)", "busbw (GB/s)".

column_of("Time (ms)")         # ("time_us", "ms")
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

COLUMNS = ("source", "system", "gpus", "nodes", "op", "dtype", "size_bytes", "time_us", "algbw_gbps", "busbw_gbps",
           "notes")  # fmt: skip
_OTHER = {
    "source": ("reference", "url", "log", "origin"),
    "system": ("cluster", "machine", "hardware", "platform", "testbed"),
    "gpus": ("gpu", "ranks", "nranks", "np", "world", "devices", "processes"),
    "nodes": ("node", "hosts", "host", "servers", "nnodes", "instances"),
    "op": ("collective", "operation", "test", "coll"),
    "dtype": ("type", "datatype", "data_type"),
    "size_bytes": ("size", "bytes", "msg", "message", "buffer", "msg_size", "message_size"),
    "time_us": ("time", "latency", "duration", "time_out_of_place"),
    "algbw_gbps": ("algbw", "alg_bw", "algorithm_bandwidth", "alg_bandwidth"),
    "busbw_gbps": ("busbw", "bus_bw", "bus_bandwidth"),
    "notes": ("note", "comment", "comments", "remarks"),
}  # fmt: skip
_NAMES = {name: column for column, others in _OTHER.items() for name in others}
#: Text that says what the ranks ran on where no column is called so.
_SYSTEM = ("gpu_type", "gpu_model", "accelerator", "interconnect", "network", "fabric", "nic", "nics")
_UNIT = re.compile(
    r"^(.*?)[\s_]*(?:[(\[]\s*([\w/]+)\s*[)\]]|_(us|ms|s|ns|gbps|bytes|b|kb|kib|mb|mib|gb|gib))$", re.IGNORECASE
)


def column_of(name: str) -> tuple[str, str]:
    """Return a column in our words, and the unit that its head states."""
    plain = _plain(name)
    if plain in COLUMNS:
        return plain, ""
    found = _UNIT.match(name.strip())
    stem, unit = (found.group(1), found.group(2) or found.group(3)) if found else (name, "")
    column = _plain(stem)
    column = column if column in COLUMNS else _NAMES.get(column, "")
    return (column, "" if unit.lower() in ("gbps", "bytes") and not found.group(2) else unit) if column and found else (
        _NAMES.get(plain, plain), ""
    )  # fmt: skip


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return text if text in COLUMNS else re.sub(r"^(?:num|number_of|n|no|of)_|_(?:count|size)$", "", text)


def renamed(names: Sequence[str], cells: Mapping[str, str]) -> dict[str, str]:
    """Return a row under our names; a number whose unit is in the head of its column carries it."""
    out: dict[str, str] = {}
    for name in names:
        column, unit = column_of(name)
        cell = cells.get(name, "").strip()
        if column not in out:
            out[column] = f"{cell} {unit}" if unit and re.fullmatch(r"[-+\d.,eE]+", cell) else cell
    if "system" not in out:
        out["system"] = " ".join(cell for name in _SYSTEM if (cell := out.get(name, "")))
    return out
