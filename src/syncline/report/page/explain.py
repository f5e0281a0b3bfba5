"""A traced step, or two of them, as a page: the account as a bar, then ranks, collectives, stalls and changes."""

from __future__ import annotations

from syncline.describe import units
from syncline.explaining.against import TraceDifference
from syncline.explaining.explain import Explanation
from syncline.questions.explain import DifferenceAnswer, ExplainAnswer
from syncline.report.page.page import render
from syncline.report.text.explain import head
from syncline.timeline.account import Account
from syncline.timeline.account.account import COMMUNICATION, WORDS, StepCause

Rows = list[tuple[str, ...]]
Tables = list[tuple[str, tuple[str, ...], Rows]]


def page(answer: ExplainAnswer | DifferenceAnswer) -> str:
    """Return the page of an explanation, or of a difference."""
    return _explained(answer.result) if isinstance(answer, ExplainAnswer) else _different(answer.result)


def _explained(found: Explanation) -> str:
    account, time = found.account, units.show_time
    steps = {f"Where {account.name} goes": account, f"The worst, {found.worst.name}": found.worst}
    tables: Tables = [
        *((name, ("<cause", "<what", "time", "share", "hidden"), account_rows(step))
          for name, step in list(steps.items())[: 2 if found.steps > 1 else 1]),
        ("What would change it", ("<change", "step", "saves", "<not promised"),
         [(one.change, time(one.step_s), f"{one.share:.1%}", one.caveat) for one in found.changes]),
        ("Collectives in a step", ("<collective", "ranks", "calls", "bytes", "<seen", "takes", "exposed", "busbw",
                                   "should", "late", "slow"),
         [(f"{one.operation} {one.group}", str(one.ranks or "?"), f"{one.calls:.4g}",
           units.show_size(one.size_bytes) if one.size_bytes else "?", one.algorithm, time(one.total_s),
           time(one.exposed_s), _rate(one.busbw_Bps), _rate(one.expected_busbw_Bps), _time(one.late_s),
           _time(one.slow_s)) for one in found.collectives]),
        ("Overlap that was lost", ("<why", "a step", "<what helps"),
         [(one.reason, time(one.seconds), one.advice) for one in found.lost_overlap]),
        ("The device idles while the host is in", ("<call", "<line", "times", "a step"),
         [(one.what, one.where, str(one.times), time(one.seconds)) for one in found.stalls]),
        ("Ranks", ("rank", "median", "worst", "others wait for it", *(f"{cause}" for cause in StepCause)),
         [(str(one.rank), time(one.median_s), time(one.worst_s), _time(one.late_s),
           *(f"{one.causes.get(str(cause), 0.0):.1%}" for cause in StepCause)) for one in found.by_rank]),
    ]  # fmt: skip
    return render(
        "figures", title=head(found),
        figures=[(time(account.step_s), f"{account.name}, the median"), (time(found.worst.step_s), found.worst.name),
                 (f"{account.share(StepCause.KERNELS):.1%}", "the device computes"),
                 (f"{account.share(*COMMUNICATION):.1%}", "waits for communication"),
                 (f"{account.share(StepCause.HOST, StepCause.INPUT):.1%}", "waits for host and input")],
        lead="", tables=[row for row in tables if row[2]], splits=[],
        notes=[f"The trace does not have {text}." for text in found.lacks],
    )  # fmt: skip


def account_rows(account: Account) -> Rows:
    """Return the lines of an account as cells of a table."""
    return [
        (WORDS[line.cause], line.what, units.show_time(line.seconds),
         f"{line.seconds / max(account.step_s, 1e-12):.1%}",
         units.show_time(line.hidden_s) if line.hidden_s > 0 else "")
        for line in account.lines
    ]  # fmt: skip


def _rate(value: float | None) -> str:
    return units.show_bandwidth(value) if value else ""


def _time(value: float | None) -> str:
    return units.show_time(value) if value else ""


def _different(found: TraceDifference) -> str:
    account, time = found.account, units.show_time
    tables: Tables = [
        ("By cause", ("<cause", "before", "after", "change"),
         [(WORDS[row.cause], time(row.before_s), time(row.after_s), _signed(row.change_s)) for row in account.causes]),
        ("By line", ("<cause", "<what", "before", "after", "change"),
         [(str(row.cause), row.what, time(row.before_s), time(row.after_s), _signed(row.change_s))
          for row in account.lines]),
        ("Kernels that changed", ("<kernel", "calls before", "after", "before", "after", "change"),
         [(row.name, f"{row.before_calls:.4g}", f"{row.after_calls:.4g}", time(row.before_s), time(row.after_s),
           _signed(row.change_s)) for row in found.kernels]),
        ("Collectives", ("<collective", "ranks before", "after", "exposed before", "after"),
         [(row.name, str(row.before_ranks), str(row.after_ranks), time(row.before_exposed_s),
           time(row.after_exposed_s)) for row in found.collectives]),
    ]  # fmt: skip
    return render(
        "figures", title="Two steps, subtracted",
        figures=[(time(account.before.step_s), account.before.source),
                 (time(account.after.step_s), account.after.source), (_signed(account.change_s), "change")],
        lead=found.why, tables=[row for row in tables if row[2]], splits=[], notes=[],
    )  # fmt: skip


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{units.show_time(abs(seconds))}"
