"""Two steps subtracted: what became slower by line of the account, by kernel and by collective; in a sentence why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from syncline.describe import units
from syncline.explaining.attribution import WORLD
from syncline.explaining.explain import Explanation
from syncline.timeline.account import Account, AccountDifference, subtract
from syncline.timeline.account.account import COMMUNICATION, WORDS
from syncline.timeline.recording.recording import Doing
from syncline.workload.trace import start_of

MOST_KERNELS = 12


@dataclass(frozen=True)
class KernelDifference:
    """One kernel in a step of both: calls and time, hidden or not."""

    name: str
    before_calls: float
    after_calls: float
    before_s: float
    after_s: float
    change_s: float


@dataclass(frozen=True)
class CollectiveDifference:
    """One kind of collective in a step of both."""

    name: str
    before_ranks: int
    after_ranks: int
    before_s: float
    after_s: float
    before_exposed_s: float
    after_exposed_s: float
    before_busbw_Bps: float | None
    after_busbw_Bps: float | None


@dataclass(frozen=True)
class TraceDifference:
    """What changed from one step to the other; positive is slower."""

    why: str
    account: AccountDifference
    kernels: tuple[KernelDifference, ...]
    """Largest change first; none where one side is a prediction."""
    collectives: tuple[CollectiveDifference, ...]


def predicted_account(paths: Sequence[str | Path]) -> Account | None:
    """Return the account in the JSON that a command wrote; None where the files are traces."""
    if len(paths) != 1 or not Path(paths[0]).is_file():
        return None
    start = start_of(Path(paths[0]))
    if b'"traceEvents"' in start or b'"account"' not in Path(paths[0]).read_bytes()[: 64 << 20]:
        return None
    try:
        data = from_json(Path(paths[0]).read_bytes())
        holders = [one for one in (data, *data.values()) if isinstance(one, dict) and "account" in one]
        found = holders[0]["account"] if holders else None  # of a plan, its best one's
        plain = {key: value for key, value in found.items() if key != "causes_s"} if isinstance(found, dict) else found
        return TypeAdapter(Account).validate_python(plain)
    except (ValueError, AttributeError, ValidationError):
        return None


def difference(before: Explanation | Account, after: Explanation | Account | None) -> TraceDifference:
    """Return what changed; kernels and collectives where both sides were traced."""
    assert after is not None
    old, new = _account(before), _account(after)
    account = subtract(old, new)
    kernels: tuple[KernelDifference, ...] = ()
    collectives: tuple[CollectiveDifference, ...] = ()
    if isinstance(before, Explanation) and isinstance(after, Explanation):
        kernels, collectives = _kernels(before, after), _collectives(before, after)
    return TraceDifference(_why(account, before, after), account, kernels, collectives)


def _account(of: Explanation | Account) -> Account:
    return of.account if isinstance(of, Explanation) else of


def _why(account: AccountDifference, before: Explanation | Account, after: Explanation | Account) -> str:
    """Return the answer in a sentence: how much longer the step is, and the causes that make most of that."""
    change = account.change_s
    took = f"{units.show_time(account.before.step_s)} became {units.show_time(account.after.step_s)}"
    if abs(change) < 0.005 * account.before.step_s:
        return f"The steps take the same: {took}."
    rows = sorted(account.causes, key=lambda row: -row.change_s if change > 0 else row.change_s)
    told = [row for row in rows if row.change_s * change > 0 and abs(row.change_s) > 0.15 * abs(change)][:3]
    words = ", ".join(f"{WORDS[row.cause]} {units.show_time(abs(row.change_s))}" for row in told)
    longer = "longer" if change > 0 else "shorter"
    found = f"{took}, {units.show_time(abs(change))} {longer}: {words}."
    old, new = account.before.share(*COMMUNICATION), account.after.share(*COMMUNICATION)
    if isinstance(before, Explanation) and isinstance(after, Explanation) and before.world != after.world and new > old:
        ranks = f"{after.world or after.ranks} ranks instead of {before.world or before.ranks}"
        found += f" On {ranks} communication is {new:.0%} of the step instead of {old:.0%}."
    return found


def _kernels(before: Explanation, after: Explanation) -> tuple[KernelDifference, ...]:
    old, new = _by_name(before), _by_name(after)
    rows = []
    for name in dict.fromkeys([*old, *new]):
        (calls, took), (more, longer) = old.get(name, (0.0, 0.0)), new.get(name, (0.0, 0.0))
        rows.append(KernelDifference(name, calls, more, took, longer, longer - took))
    return tuple(sorted(rows, key=lambda row: -abs(row.change_s))[:MOST_KERNELS])


def _by_name(of: Explanation) -> dict[str, tuple[float, float]]:
    mine = of.attributions[of.shown]
    device, steps = mine.recording.device, len(mine.windows)
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in range(len(device)):
        if device.doing[row] != Doing.COLLECTIVE:
            entry = found[mine.recording.name_of(row)]
            entry[0] += 1 / steps
            entry[1] += float(device.end_s[row] - device.start_s[row]) / steps
    return {name: (calls, took) for name, (calls, took) in found.items()}


def _collectives(before: Explanation, after: Explanation) -> tuple[CollectiveDifference, ...]:
    def table(of: Explanation) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for one in of.collectives:
            name = f"{one.operation}{f' ({one.group})' if one.group not in WORLD else ''}"
            row = found.setdefault(name, [0.0, 0.0, 0.0, 0.0])
            row[0] = max(row[0], one.ranks)
            row[1] += one.total_s
            row[2] += one.exposed_s
            row[3] = max(row[3], one.busbw_Bps or 0.0)
        return found

    old, new = table(before), table(after)
    empty = [0.0, 0.0, 0.0, 0.0]
    rows = []
    for name in dict.fromkeys([*old, *new]):
        a, b = old.get(name, empty), new.get(name, empty)
        rows.append(
            CollectiveDifference(name, int(a[0]), int(b[0]), a[1], b[1], a[2], b[2], a[3] or None, b[3] or None)
        )
    return tuple(sorted(rows, key=lambda row: -abs(row.after_exposed_s - row.before_exposed_s)))
