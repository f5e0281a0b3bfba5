"""What a job needs of switches and clocks, as text: buffers, and time slots beside best effort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from syncline.describe.units import show_time

if TYPE_CHECKING:
    from rich.console import Console


def show_buffers(console: Console, found: Mapping[str, Any]) -> None:
    """Print the smallest buffer, its marks and pauses, and the runs behind them."""
    kind = "pauses instead of dropping" if found["lossless"] else "drops what does not fit"
    console.print(
        f"{found['job']} on {found['cluster']} ({found['transport']}, {found['routing']}; {kind}): "
        f"{show_time(found['ideal_s'])} with ample buffers", soft_wrap=True,
    )  # fmt: skip
    console.print(
        f"smallest buffer a switch for at most {found['within']:.0%} longer: {found['buffer_bytes'] / 1e6:.3g} MB",
        soft_wrap=True,
    )
    if found["lossless"]:
        console.print(
            f"  of it headroom {found['headroom_bytes'] / 1e6:.3g} MB; an ingress is paused from "
            f"{found['pause_bytes'] / 1e3:,.0f} kB on while the switch is otherwise empty", soft_wrap=True,
        )  # fmt: skip
        for row in found["headroom"]:
            console.print(
                f"  {row['ports']:,} ports of {row['rate_Bps'] * 8e-9:g} Gb/s, {show_time(row['latency_s'])} "
                f"away (up to {row['length_m']:,.0f} m): {row['headroom_bytes'] / 1e3:,.1f} kB each, and "
                f"{row['response_bytes'] / 1e3:,.1f} kB more on a switch", soft_wrap=True,
            )  # fmt: skip
        console.print(
            "  more on a switch: simulated ports heed a pause at once, real ones within IEEE 802.3's pause quanta",
            soft_wrap=True,
        )
    if found["marks"] is not None:
        marks = found["marks"]
        console.print(f"lowest marks: from {show_time(marks['low_s'])} to {show_time(marks['high_s'])} "
                      f"of link rate, probability {marks['probability']:g}", soft_wrap=True)  # fmt: skip
    elif found["mark_trials"]:
        console.print("no marks that were tried keep the job within that", soft_wrap=True)
    table = Table("buffer", "marks from", "time", "over ideal", "drops", "pauses", "deepest queue")
    for row in [*found["buffer_trials"], *found["mark_trials"]]:
        table.add_row(
            f"{row['buffer_bytes'] / 1e6:,.4g} MB", show_time(row["mark_s"]) if row["mark_s"] else "",
            show_time(row["time_s"]), f"{row['time_s'] / found['ideal_s'] - 1:+.1%}", f"{row['drops']:,}",
            f"{row['pauses']:,}", f"{row['peak_bytes'] / 1e3:,.0f} kB",
        )  # fmt: skip
    console.print(table)


def show_slots(console: Console, found: Mapping[str, Any]) -> None:
    """Print a job in time slots beside best effort."""
    best = found["best_effort"]
    console.print(
        f"{found['job']} on {found['cluster']}: {found['num_messages']:,} messages in time slots, clocks within "
        f"{show_time(found['clock_error_s'])}, so a guard of {show_time(found['guard_s'])} between two", soft_wrap=True,
    )  # fmt: skip
    console.print(
        f"planned end {show_time(found['planned_s'])}; {show_time(found['bare_s'])} without guards, of which "
        f"{(found['guards'] - 1) / 2:,.0f} follow each other on the way to the end", soft_wrap=True,
    )  # fmt: skip
    if found["break_even_s"] > 0:
        console.print(f"as fast as best effort with clocks within {show_time(found['break_even_s'])}", soft_wrap=True)
    else:
        console.print("never as fast as best effort, with clocks however good", soft_wrap=True)
    table = Table("", "clocks off", "time", "change", "deepest queue", "p99", "late", "pauses")
    rows = [(found["transport"], best), *(("slots", row) for row in found["scheduled"])]
    for name, row in rows:
        table.add_row(
            name, show_time(row["real_error_s"]) if row is not best else "", show_time(row["time_s"]),
            f"{row['time_s'] / best['time_s'] - 1:+.1%}" if row is not best else "",
            f"{row['deepest_queue_bytes'] / 1e3:,.1f} kB", show_time(row["p99_s"]),
            f"{row['late']:,}" if row is not best else "", f"{row['pauses']:,}",
        )  # fmt: skip
    console.print(table)
    console.print("p99: of messages; late: messages whose data had not arrived when their slot came", soft_wrap=True)
