"""What a job is for, as lines of text: when it ends, what it costs, how likely that is, and what would do better."""

from __future__ import annotations

from syncline.describe import units
from syncline.planning.cost.recovery import Recovery
from syncline.planning.decide.forecast import Ends, Forecast
from syncline.planning.decide.prospects import LIKELY, Option, Prospects
from syncline.report.text.lines import chance_words

_MOST_OPTIONS = 6
#: A budget below the least cost is out of reach, unless the price of a GPU-hour may well be lower.
IMPOSSIBLE = 0.01
#: What must be bought first is told apart where another option asks for less than this part of it.
LESS_TO_BUY = 0.7
SHORT_DAYS = 3.0
"""Runs that take less are told in hours."""


def run_lines(run: Prospects) -> list[str]:
    """Return the answer about the run, the technical part not in it."""
    first, *goals = forecast_lines(run.now.forecast)
    return [f"  run        {first}", *(f"             {text}" for text in goals), f"  advice     {advice(run)}"]


def forecast_lines(f: Forecast) -> list[str]:
    """Return when a run ends and what it costs, and whether deadline and budget hold."""
    tokens = units.show_count(f.goal.tokens or 0.0)
    return [f"{tokens} tokens: {end_words(f)}; {cost_words(f)}, 9 of 10 runs", *goal_lines(f)]


def end_words(f: Forecast) -> str:
    """Return when the run ends, with the interval that holds nine of ten cases."""
    low, high = f.days_90
    words = f"{days_words(f.days)} ({days_words(low, f.days, unit=False)} to {days_words(high, f.days, unit=False)})"
    if f.end is not None:
        words = f"ends {f.end} ({f.day(low)} to {f.day(high)}), after {words}"
    return words


def days_words(days: float, like: float | None = None, unit: bool = True) -> str:
    """Return a duration in whole days, or in hours where `like` is below three days.

    >>> days_words(44.2), days_words(0.09), days_words(0.5, 0.09, unit=False)
    ('44 days', '2.2 hours', '12.0')
    """
    short = (days if like is None else like) < SHORT_DAYS
    value = _length(days, short)
    return value if not unit else f"{value} {'hours' if short else 'days'}"


def cost_words(f: Forecast) -> str:
    """Return what the run costs."""
    return f"{units.show_money(f.usd)} ({_money(f.usd_90)})"


def goal_lines(f: Forecast) -> list[str]:
    """Return whether deadline and budget hold."""
    lines = []
    if f.chance_deadline is not None and f.goal.days_allowed is not None:
        last = f" ({f.goal.last_day})" if f.goal.last_day is not None else ""
        spare = f.goal.days_allowed - f.days
        left = f"{abs(spare):,.0f} day{'' if round(abs(spare)) == 1 else 's'}" if abs(spare) >= 0.5 else "hours"
        room = f"{left} to spare" if spare >= 0 else f"{left} late"
        over = f.goal.days_allowed < f.least_days
        least = f"; at the GPUs' peak it takes {days_words(f.least_days)}" if over else ""
        words = _verdict(f.chance_deadline, over)
        lines.append(f"deadline {f.goal.days_allowed:,.0f} days{last}: {words}, {room}{least}")
    if f.chance_budget is not None and f.goal.budget is not None:
        spare = f.goal.budget - f.usd
        room = f"{units.show_money(abs(spare))} {'to spare' if spare >= 0 else 'short'}"
        over = f.goal.budget < f.least_usd and f.chance_budget < IMPOSSIBLE
        least = f"; at the GPUs' peak it costs {units.show_money(f.least_usd)}" if over else ""
        lines.append(f"budget {units.show_money(f.goal.budget)}: {_verdict(f.chance_budget, over)}, {room}{least}")
    return lines


def _verdict(chance: float, impossible: bool) -> str:
    return "impossible" if impossible else verdict(chance)


def verdict(chance: float) -> str:
    """Return a chance in words and as a number.

    >>> verdict(0.97), verdict(0.5), verdict(0.0)
    ('holds (97 %)', 'uncertain (50 %)', 'does not hold (under 1 %)')
    """
    words = "holds" if chance >= LIKELY else "does not hold" if chance <= 1 - LIKELY else "uncertain"
    return f"{words} ({chance_words(chance)})"


def advice(run: Prospects) -> str:
    """Return what to do about the run in one sentence."""
    asked = _asked(run)
    advised, fastest = run.advised, run.fastest
    if advised is not None and fastest is not None:
        goal = "that meets the goal" if asked else "that was tried"
        planned = "as planned: " if advised is run.now else ""
        words = f"{planned}{option_words(advised)}; nothing {goal} is cheaper by more than {run.tie_within:.0%}"
        if fastest.forecast.days >= advised.forecast.days:
            return f"{words}, or faster"
        return f"{words}; fastest: {option_words(fastest)}"
    if run.needed:
        picks = [min(found, key=lambda option: option.forecast.usd) for found in _by_basis(run.needed)]
        free = _free(run)
        words = f"nothing here meets the goal{free}; {'else ' if free else ''}"
        words += ", or ".join(_get(option) for option in picks[:2])
        least = min(run.needed, key=lambda option: option.capital_usd or float("inf"))
        # The cheapest run may ask for much more money at once than another that will do.
        if least.capital_usd and least.capital_usd < LESS_TO_BUY * max(option.capital_usd for option in picks):
            words += f"; the least to buy: {_get(least).removeprefix('buy ')}"
        return words
    nearest = run.nearest
    likely = chance_words(nearest.chance)
    free = _free(run)
    words = f"nothing that was tried meets the goal{free or _why(run)}"
    return f"{words}; nearest{' without it' if free else ''}: {option_words(nearest)}, {likely} likely"


def _free(run: Prospects) -> str:
    """Return the change that costs nothing and would meet the goal, with how likely it is to work."""
    option = run.free
    if option is None or option.change is None:
        return ""
    note = f" ({option.change.note})" if option.change.note else ""
    return f" as it is; {option.change.words} would{note}: {_ends(option)}, {chance_words(option.chance)} likely then"


def _why(run: Prospects) -> str:
    """Return which of deadline and budget nothing keeps, and how near it comes."""
    tried, goal, words = (*run.options, *run.larger), run.now.forecast.goal, []
    if goal.days_allowed is not None and all((one.forecast.chance_deadline or 0.0) < LIKELY for one in tried):
        fastest = min(tried, key=lambda one: one.forecast.days)
        words.append(f"the fastest run takes {days_words(fastest.forecast.days)} on {fastest.num_gpus:,} GPUs")
    if goal.budget is not None and all((one.chance_budget or 0.0) < LIKELY for one in tried):
        least = min(tried, key=lambda one: max(one.forecast.usd, one.capital_usd))
        words.append(f"the cheapest costs {units.show_money(least.forecast.usd)}")
    return f" ({', '.join(words)})" if words else " (deadline and budget hold apart, not together)"


def _asked(run: Prospects) -> bool:
    """Whether the job has a deadline or a budget."""
    goal = run.now.forecast.goal
    return goal.deadline is not None or goal.budget is not None


def option_words(option: Option) -> str:
    """Return an option in a few words, with what must be bought for it."""
    first = f", {units.show_money(option.capital_usd)} of hosts and network bought first" if option.capital_usd else ""
    return f"{_ends(option)}{first}"


def _ends(option: Option) -> str:
    f = option.forecast
    end = f"by {f.end}" if f.end is not None else f"in {days_words(f.days)}"
    return f"{option.num_gpus:,} GPUs ({option.basis}) {end} for {units.show_money(f.usd)}"


def option_table(run: Prospects) -> list[str]:
    """Return the options side by side; where the job has a goal, those that meet it first and marked."""
    asked, shown = _asked(run), run.ranked[:_MOST_OPTIONS]
    bought = any(option.capital_usd for option in shown)
    short = max(option.forecast.days for option in shown) < SHORT_DAYS
    rows = [("options", "hours" if short else "days", "cost of the run", *(("buy first",) if bought else ()),
             *(("deadline", "budget") if asked else ()))]  # fmt: skip
    for option in shown:
        f = option.forecast
        mark = "*" if option.meets and asked else " "
        name = f"{mark} {option.num_gpus:,} GPUs, {option.basis.removeprefix('rented: ')}"
        days = f"{_length(f.days, short)} ({_length(f.days_90[0], short)}-{_length(f.days_90[1], short)})"
        chances = (_chance(f.chance_deadline), _chance(option.chance_budget)) if asked else ()
        first = (units.show_money(option.capital_usd) if option.capital_usd else "-",) if bought else ()
        rows.append((name, days, cost_words(f), *first, *chances))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        lines.append(f"  {name:<{widths[0]}}  {'  '.join(padded)}".rstrip())
    note = f"* at least {LIKELY:.0%} likely to keep deadline and budget. " if asked else ""
    return [*lines, f"    {note}Fewer GPUs of an owned cluster: the others do other work."]


def spare_table(f: Forecast) -> list[str]:
    """Return what the run comes to with so many spare hosts."""
    if not f.spares:
        return []
    now = f.recovery.parts.spares
    lines = [f"  {'spares':<10} {'goodput':>8} {'days':>7} {'cost of the run':>16}"]
    for each in f.spares:
        mark = "*" if each.spares == now else " "
        days = f"{each.days:,.1f}" if each.days < SHORT_DAYS else f"{each.days:,.0f}"
        lines.append(f"  {mark} {each.spares:<8} {each.goodput:>8.1%} {days:>7} {units.show_money(each.usd):>16}")
    hours = f.recovery.standby.repair_s / 3600
    return [*lines, f"    a failed host is back after {hours:,.0f} h on average: {f.recovery.repair_source}"]


def recovery_line(found: Recovery) -> str:
    """Return where goodput comes from."""
    every = f"{found.interval_s / 60:.0f} min" if found.interval_s >= 90 else f"{found.interval_s:.0f} s"
    how = "behind the steps" if found.asynchronous else "while training waits"
    write = f"{units.show_size(found.state_bytes)} written {how} in {units.show_time(_two(found.write_s))}"
    stated = "" if "storage" in found.stated else " (storage assumed)"
    often = found.mttf_s / 3600
    fails = f"{often:,.0f} h" if often < 100 else f"{often / 24:,.0f} days"
    return (
        f"{found.goodput:.1%}: a failure every {fails} (rate of {found.rate.system}), noticed after "
        f"{found.detect_s / 60:.1f} min, {(found.begin_s - found.detect_s + found.load_s) / 60:.0f} min to restart, "
        f"{_spares(found)}, checkpoint every {every}, {write}{stated}"
    )


def _spares(found: Recovery) -> str:
    if found.parts.rents:
        return "a host rented for each that fails"
    spares = found.parts.spares
    return "a spare host always at hand" if spares is None else f"{spares} spare host{'' if spares == 1 else 's'}"


def _two(value: float) -> float:
    return float(f"{value:.2g}")


def _length(days: float, short: bool) -> str:
    return f"{24 * days:,.1f}" if short else f"{days:,.0f}"


def _get(option: Option) -> str:
    verb = f"buy {units.show_money(option.capital_usd)} of hosts and network:" if option.capital_usd else "rent:"
    return f"{verb} {_ends(option)}, {chance_words(option.chance)} likely"


def _by_basis(options: tuple[Option, ...]) -> list[list[Option]]:
    owned = [option for option in options if option.basis == "owned"]
    rented = [option for option in options if option.basis != "owned"]
    return [found for found in (owned, rented) if found]


def _chance(chance: float | None) -> str:
    return "" if chance is None else chance_words(chance).replace("over ", ">").replace("under ", "<")


def _money(interval: Ends) -> str:
    low, high = (units.show_money(value) for value in interval)
    return f"{low} to {high}"
