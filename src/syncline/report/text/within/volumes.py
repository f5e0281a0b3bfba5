"""The traffic of a job, and a transfer, in words."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.describe import units
from syncline.questions.within.volumes import ModelList, Transfer, Volumes


def text(answer: Volumes | Transfer | ModelList, width: int) -> Iterator[str]:
    """Yield what one GPU sends, or what a transfer takes."""
    match answer:
        case Volumes():
            yield f"{answer.job} on {answer.gpus:,} GPUs: bytes that one GPU sends in one step"
            yield ""
            if not answer.volumes:
                yield "  nothing: a single GPU has no peer"
                return
            for row in answer.volumes:
                yield (
                    f"  {row.kind:16} {units.show_size(row.size_bytes):>12}   "
                    f"{row.collective} over {row.ranks} ranks ({row.axis}), {row.calls:,.6g} calls"
                )
                yield f"  {'':16} = {row.formula}"
                yield f"  {'':16}   counted at: {row.where}"
            yield ""
            yield f"  {'all':16} {units.show_size(answer.total_bytes):>12}"
        case Transfer():
            size, rate = answer.size_bytes, answer.rate_Bps
            given = f"{units.show_given_size(size)} ({size:,.0f} B) at {units.show_rate(rate)}"
            yield f"{given} ({units.show_bandwidth(rate)}) take {units.show_time(answer.time_s)}"
        case ModelList():
            yield from (f"{name:20} {params / 1e9:10.3f} B" for name, params in answer.models.items())
