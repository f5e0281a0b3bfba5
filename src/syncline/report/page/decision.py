"""The first page of a plan's report, for the person who pays: cost, date, risk, recommendation and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from syncline.describe import units
from syncline.planning.answer import PlanResult
from syncline.planning.decide.forecast import Forecast, SpareValue, Swing
from syncline.planning.decide.prospects import LIKELY, Option, Prospects
from syncline.report.chart.plot import Axis, Line, plot, tornado
from syncline.report.text.check.run import SHORT_DAYS, advice, cost_words, days_words, end_words, verdict
from syncline.report.text.lines import chance_words
from syncline.report.text.plan import do_first

MOST_OPTIONS, MOST_BARS = 6, 7
SHARES = (5, 10, 25, 50, 75, 90)
Cell = str | tuple[str | Markup, str]


@dataclass(frozen=True)
class DecisionSection:
    """What the template shows about the run."""

    title: str
    cards: Sequence[tuple[str, str]]
    began: Sequence[str]
    advice: str
    heads: Sequence[str]
    options: Sequence[Sequence[Cell]]
    note: str
    first: Sequence[str]
    chances: Sequence[Markup]
    tornado: Markup
    confirm: Sequence[Sequence[Cell]]
    spares: Sequence[Sequence[Cell]]
    repair: str


def decision(answer: PlanResult) -> DecisionSection | None:
    """Return the answer about the run, one printed page; None where the job does not say what it is for."""
    if answer.run is None:
        return None
    p, run, f = answer.best, answer.run, answer.run.now.forecast
    shown = run.ranked[:MOST_OPTIONS]
    columns = _columns(run, shown)
    goals = " and ".join(name for name in columns if name in ("deadline", "budget"))
    bold = f"Bold: at least {LIKELY:.0%} likely to keep {goals}. " if goals else ""
    widest = [s for s in f.swings if abs(s.usd[1] - s.usd[0]) > 0.001 * f.usd][:MOST_BARS]
    return DecisionSection(
        title=f"{p.model}, {units.show_count(answer.question.job.tokens or 0.0)} tokens on {p.num_gpus:,} {p.gpu}",
        cards=_cards(f),
        began=[text for text in answer.notes if text.startswith("the start ")],
        advice=advice(run),
        heads=["<option", "days", "cost", *columns],
        options=[_option(option, option is run.now, columns, bool(goals)) for option in shown],
        note=f"{bold}Days and cost with nine of ten cases.",
        first=[text.partition(". ")[2] or text for text in do_first(answer)],
        chances=[_chances(f, "days"), _chances(f, "usd")],
        tornado=tornado("how far the cost of the run moves with each assumption",
                        [(s.words, *s.usd) for s in widest], f.usd, units.show_money),
        confirm=[*(_unstated(text) for text in answer.assumed),
                 *(_source(f, swing) for swing in f.swings)],
        spares=[_spare(f, each) for each in f.spares],
        repair=f"A failed host is back after {f.recovery.standby.repair_s / 3600:,.0f} h on average: "
               f"{f.recovery.repair_source}. {_stands_by(f)}",
    )  # fmt: skip


def _unstated(text: str) -> list[Cell]:
    return [text, "", "", "", ("", "not in the cluster file"), "", ""]


def _chances(f: Forecast, what: str) -> Markup:
    """Return the share of runs that end, or cost no more, at each date or price, and the deadline or the budget."""
    is_time = what == "days"
    drawn, goal = (f.drawn_days, f.goal.days_allowed) if is_time else (f.drawn_usd, f.goal.budget)
    at, share = np.percentile(drawn, SHARES), np.array(SHARES, float)

    def words(value: float) -> str:
        if not is_time:
            return units.show_money(value)
        day = f.day(value)
        return days_words(value) if day is None else str(day)

    low, high = min(at[0], goal or at[0]), max(at[-1], goal or 0.0)
    marks = np.linspace(low, high, 4)
    lines = [Line("runs", at, share, titles=[f"{k} %: {words(v)}" for k, v in zip(SHARES, at, strict=True)],
                  radii=[2.0] * len(SHARES), colour="var(--accent)", width=2.2)]  # fmt: skip
    if goal is not None:
        lines.append(Line("deadline" if is_time else "budget", [goal, goal], [0, 100], colour="var(--bad)"))
    label = "% of runs that have ended by then" if is_time else "% of runs that cost no more"
    across = Axis(low, high, [(float(mark), words(float(mark))) for mark in marks])
    up = Axis(0.0, 100.0, [(k, f"{k}") for k in (0, 50, 100)], name=label)
    return plot(label, lines, across, up, width=560, height=210, left=46, has_legend=goal is not None)


def _spare(f: Forecast, each: SpareValue) -> list[Cell]:
    end = each.end or days_words(each.days)
    now = each.spares == f.recovery.parts.spares
    return [f"{each.spares}{' (as stated)' if now else ''}", f"{each.goodput:.1%}", end, units.show_money(each.usd)]


def _stands_by(f: Forecast) -> str:
    if f.recovery.parts.rents:
        return "A host is rented for each that is away."
    if f.recovery.parts.spares is None:
        return "The answer takes a spare host to be at hand for every failure: state `spares:` in the cluster file."
    return ""


def _cards(f: Forecast) -> list[tuple[str, str]]:
    low, high = f.days_90
    cards = [(units.show_money(f.usd), f"the run; nine of ten cases: {cost_words(f).partition('(')[2].rstrip(')')}")]
    if f.end is not None:
        days = end_words(f).partition("after ")[2]
        cards.append((str(f.end), f"the end; nine of ten cases: {f.day(low)} to {f.day(high)}; {days}"))
    else:
        span = f"{days_words(low, f.days, unit=False)} to {days_words(high, f.days)}"
        cards.append((days_words(f.days), f"the run; nine of ten cases: {span}"))
    for name, chance, goal in (
        ("deadline", f.chance_deadline, f.goal.deadline),
        ("budget", f.chance_budget, units.show_money(f.goal.budget or 0.0)),
    ):
        if chance is not None:
            cards.append((chance_words(chance), f"{name} {goal}: {verdict(chance).partition(' (')[0]}"))
    return [*cards, (f"{f.goodput:.1%}", f"goodput: {f.interruptions:,.0f} interruptions expected")]


def _columns(run: Prospects, shown: Sequence[Option]) -> dict[str, Callable[[Option], str]]:
    """Return the columns that the options need next to days and cost."""
    goal, columns = run.now.forecast.goal, dict[str, Callable[[Option], str]]()
    if goal.deadline is not None:
        columns["deadline"] = lambda option: chance_words(option.forecast.chance_deadline or 0.0)
    if goal.budget is not None:
        columns["budget"] = lambda option: chance_words(option.chance_budget or 0.0)
    if any(option.capital_usd for option in shown):
        columns["buy first"] = lambda option: units.show_money(option.capital_usd) if option.capital_usd else ""
    return columns


def _option(option: Option, is_now: bool, columns: dict[str, Callable[[Option], str]], has_goals: bool) -> list[Cell]:
    f = option.forecast
    name = f"{option.num_gpus:,} GPUs, {option.basis}" + (" (as planned)" if is_now else "")
    days = "–".join(days_words(day, f.days, unit=False) for day in f.days_90)
    cost = "–".join(units.show_money(usd) for usd in f.usd_90)
    bold = Markup("<b>{}</b>").format(name) if option.meets and has_goals else name
    return [
        (bold, ""), (days_words(f.days, unit=f.days < SHORT_DAYS), days), (units.show_money(f.usd), cost),
        *(show(option) for show in columns.values()),
    ]  # fmt: skip


def _source(f: Forecast, swing: Swing) -> list[Cell]:
    value = (
        f"${_number(swing.value)}{swing.unit[1:]}"
        if swing.unit.startswith("$")
        else f"{_number(swing.value)} {swing.unit}"
    )
    if swing.low == swing.high:
        return [swing.words, value, "as given", "", ("", swing.source), "", ""]
    # A move that rounds to nothing has no sign: `z` makes -0.0 a 0.0.
    cost = " ".join(f"{usd / f.usd - 1:+z.1%}" for usd in swing.usd)
    return [swing.words, value, f"{_number(swing.low)}–{_number(swing.high)}", cost, ("", swing.source), "", ""]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
