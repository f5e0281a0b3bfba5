"""The first page of a plan's report, for the person who pays: cost, date, risk, recommendation and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from syncline.describe import units
from syncline.planning.answer import PlanResult
from syncline.planning.decide.forecast import Forecast, Swing
from syncline.planning.decide.prospects import LIKELY, Option, Prospects
from syncline.report.chart.plot import tornado
from syncline.report.text.check.run import SHORT_DAYS, advice, cost_words, days_words, end_words, verdict
from syncline.report.text.interval import chance_words
from syncline.report.text.plan import do_first

MOST_OPTIONS, MOST_BARS = 7, 9
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
    tornado: Markup
    sources: Sequence[Sequence[Cell]]


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
        tornado=tornado("how far the cost of the run moves with each assumption",
                        [(s.words, *s.usd) for s in widest], f.usd, units.show_money),
        sources=[_source(f, swing) for swing in f.swings],
    )  # fmt: skip


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
        return [swing.words, value, "as given", "", "", ("", swing.source)]
    # A move that rounds to nothing has no sign: `z` makes -0.0 a 0.0.
    cost = " ".join(f"{usd / f.usd - 1:+z.1%}" for usd in swing.usd)
    days = " ".join(f"{days - f.days:+z.1f}" for days in swing.days)
    return [swing.words, value, f"{_number(swing.low)}–{_number(swing.high)}", cost, days, ("", swing.source)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
