"""A sweep in the JSON that nccl-tests writes with -J, with what was expected beside each result.

Keys of nccl-tests keep its meaning and units (us, GB/s, booleans as text); everything of syncline's own is under keys
that nccl-tests does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.bench.measured import PROGRAM
from syncline.bench.verdict import Judgement
from syncline.describe.plain import JsonObject


def results(rows: Sequence[Judgement]) -> list[JsonObject]:
    """Return one result a row."""
    return [_result(row) for row in rows]


def average_busbw_GBps(rows: Sequence[Judgement]) -> float:
    """Return the mean busbw of the rows, the figure at the end of nccl-tests' table."""
    return sum(row.measured.busbw_Bps for row in rows) / len(rows) / 1e9 if rows else 0.0


def document(rows: Sequence[Judgement], devices: Sequence[JsonObject], version: str) -> JsonObject:
    """Return the whole document; `devices` are the ranks, `version` says who measured."""
    first = rows[0].measured
    wrong = sum(row.measured.num_wrong or 0 for row in rows)
    sizes = [row.measured.size_bytes for row in rows]
    return {
        "version": version,
        "args": [PROGRAM[first.kind], "-b", str(min(sizes)), "-e", str(max(sizes))],
        "config": {
            "minimum_bytes": min(sizes),
            "maximum_bytes": max(sizes),
            "iterations": first.timing.num_repeats,
            "validation": "true" if first.num_wrong is not None else "false",
        },
        "devices": list(devices),
        "results": results(rows),
        "out_of_bounds": {"count": wrong, "okay": "true" if wrong == 0 else "false"},
        "average_bus_bandwidth": {"bandwidth": average_busbw_GBps(rows), "okay": "true"},
    }


def _result(row: Judgement) -> JsonObject:
    measured, timing = row.measured, row.measured.timing
    times = {
        "time": timing.median_s * 1e6,
        "alg_bw": measured.algbw_Bps / 1e9,
        "bus_bw": measured.busbw_Bps / 1e9,
        "nwrong": measured.num_wrong,
    }
    return {
        "size": measured.size_bytes,
        "count": measured.num_elements,
        "type": measured.dtype,
        "redop": measured.redop,
        "root": measured.root,
        "in_place" if measured.in_place else "out_of_place": times,
        "actual_iterations": timing.num_repeats,
        "algorithm": measured.algorithm,
        "p10_s": timing.p10_s,
        "median_s": timing.median_s,
        "p90_s": timing.p90_s,
        "algbw_Bps": measured.algbw_Bps,
        "busbw_Bps": measured.busbw_Bps,
        "codec_error": measured.error,
        **row.to_json(),
    }
