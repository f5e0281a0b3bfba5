"""The first page of a plan's report, for the person who pays: cost, date, risk, recommendation and alternatives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from syncline.describe import units
from syncline.plan.answer import PlanResult
from syncline.plan.decide.forecast import Forecast, Swing
from syncline.plan.decide.prospects import LIKELY, Option, Prospects
from syncline.report.chart.tornado import tornado_svg
from syncline.report.text.check.run import SHORT_DAYS, advice, cost_words, days_words, end_words, sure, verdict
from syncline.report.text.plan import do_first

MOST_OPTIONS, MOST_BARS = 7, 9
#: A date, and a number with its unit: a line may not end inside one.
_WHOLE = re.compile(r"\d{4}-\d\d-\d\d|\$?\d[\d.,]* (?:%|[kMB]\b|days?\b|GPUs?\b|GiB\b)")
_CODE = re.compile(r"`([^`]+)`")


def decision_section(answer: PlanResult) -> str:
    """Return the answer about the run, one printed page; empty where the job does not say what it is for."""
    if answer.run is None:
        return ""
    run, f = answer.run, answer.run.now.forecast
    first = "".join(f"<li>{kept(text.partition('. ')[2] or text)}</li>" for text in do_first(answer))
    return (
        f'<section class="decision"><h1>{escape(_title(answer))}</h1>{_cards(f)}{_began(answer)}'
        f'<p class="lead"><b>Recommendation:</b> {kept(advice(run))}.</p>'
        f"<h2>Alternatives</h2>{_options(run)}"
        f'<h2>What to do first</h2><ul class="plain">{first}</ul>{_taken(answer)}</section>'
        f'<section class="decision"><h2>How far the cost moves with each assumption</h2>{_tornado(f)}'
        f"{_sources(f)}</section>"
    )


def kept(text: str) -> str:
    """Return text for a page whose dates and numbers with units stay on one line, with `keys` as code."""
    marked = _CODE.sub(r"<code>\1</code>", escape(text))
    return _WHOLE.sub(lambda found: f'<span class="whole">{found.group()}</span>', marked)


def _began(answer: PlanResult) -> str:
    return "".join(f"<p><b>{escape(text)}.</b></p>" for text in answer.notes if text.startswith("the start "))


def _title(answer: PlanResult) -> str:
    p = answer.best
    tokens = units.show_count(answer.question.job.tokens or 0.0)
    return f"{p.model}, {tokens} tokens on {p.num_gpus:,} {p.gpu}"


def _cards(f: Forecast) -> str:
    cards = [
        (units.show_money(f.usd), f"the run; nine of ten cases: {cost_words(f).partition('(')[2].rstrip(')')}"),
        (str(f.end) if f.end is not None else days_words(f.days), _span(f)),
    ]
    if f.chance_deadline is not None:
        cards.append((sure(f.chance_deadline), f"deadline {f.goal.deadline}: {_held(f.chance_deadline)}"))
    if f.chance_budget is not None:
        budget = units.show_money(f.goal.budget or 0.0)
        cards.append((sure(f.chance_budget), f"budget {budget}: {_held(f.chance_budget)}"))
    cards.append((f"{f.goodput:.1%}", f"goodput: {f.interruptions:,.0f} interruptions expected"))
    inner = "".join(f'<div class="card"><b>{escape(b)}</b><span>{kept(s)}</span></div>' for b, s in cards)
    return f'<div class="cards">{inner}</div>'


def _span(f: Forecast) -> str:
    """Return what stands below the end of the run: its interval, without the number above it once more."""
    low, high = f.days_90
    if f.end is not None:
        days = end_words(f).partition("after ")[2]
        return f"the end; nine of ten cases: {f.day(low)} to {f.day(high)}; {days}"
    return f"the run; nine of ten cases: {days_words(low, f.days, unit=False)} to {days_words(high, f.days)}"


def _held(chance: float) -> str:
    return verdict(chance).partition(" (")[0]  # the number stands above it


@dataclass(frozen=True)
class _Columns:
    """Which columns the options need beside days and cost."""

    deadline: bool
    budget: bool
    bought: bool

    def heads(self) -> list[str]:
        names = (("deadline", self.deadline), ("budget", self.budget), ("buy first", self.bought))
        return [name for name, wanted in names if wanted]


def _options(run: Prospects) -> str:
    shown, goal = run.ranked[:MOST_OPTIONS], run.now.forecast.goal
    columns = _Columns(goal.deadline is not None, goal.budget is not None, any(option.capital_usd for option in shown))
    rows = "".join(_option(option, option is run.now, columns) for option in shown)
    heads = "".join(f"<th>{head}</th>" for head in ("days", "cost", *columns.heads()))
    goals = " and ".join(columns.heads()[: columns.deadline + columns.budget])
    bold = f"Bold: at least {LIKELY:.0%} likely to keep {goals}. " if goals else ""
    note = f"{bold}Days and cost with nine of ten cases."
    table = f'<table class="options"><thead><tr><th class="t">option</th>{heads}</tr></thead>{rows}</table>'
    return f'{table}<p class="note">{note}</p>'


def _option(option: Option, now: bool, columns: _Columns) -> str:
    f = option.forecast
    name = f"{option.num_gpus:,} GPUs, {option.basis}" + (" (as planned)" if now else "")
    low, high = (days_words(day, f.days, unit=False) for day in f.days_90)
    days = f"{days_words(f.days, unit=f.days < SHORT_DAYS)} <span class='note'>{low}&ndash;{high}</span>"
    low, high = (units.show_money(value) for value in f.usd_90)
    cost = f"{units.show_money(f.usd)} <span class='note'>{low}&ndash;{high}</span>"
    cells = {
        "deadline": sure(f.chance_deadline or 0.0), "budget": sure(option.chance_budget or 0.0),
        "buy first": units.show_money(option.capital_usd) if option.capital_usd else "",
    }  # fmt: skip
    rest = "".join(f"<td>{cells[head]}</td>" for head in columns.heads())
    tag = "b" if option.meets and (columns.deadline or columns.budget) else "span"
    named = f'<td class="t"><{tag}>{escape(name)}</{tag}></td>'
    return f"<tr>{named}<td>{days}</td><td>{cost}</td>{rest}</tr>"


def _taken(answer: PlanResult) -> str:
    if not answer.assumed:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in answer.assumed)
    return f'<p><b>Not said in the cluster file, and assumed:</b></p><ul class="plain">{items}</ul>'


def _tornado(f: Forecast) -> str:
    widest = [s for s in f.swings if abs(s.usd[1] - s.usd[0]) > 0.001 * f.usd][:MOST_BARS]
    rows = [(s.input.words, *s.usd) for s in widest]
    return tornado_svg(rows, f.usd, units.show_money, "how far the cost of the run moves with each assumption")


def _sources(f: Forecast) -> str:
    rows = "".join(_source(f, swing) for swing in f.swings)
    heads = "".join(f"<th>{head}</th>" for head in ("value", "range", "cost", "days"))
    return (
        f'<table class="sources"><thead><tr><th class="t">assumption</th>{heads}<th class="t">source</th></tr></thead>'
        f"{rows}</table><p class='note'>Each alone, from one end of its range (eight of ten cases) to the other.</p>"
    )


def _source(f: Forecast, swing: Swing) -> str:
    i = swing.input
    # A move that rounds to nothing has no sign: `z` makes -0.0 a 0.0.
    moves = [f"{value / f.usd - 1:+z.1%}" for value in swing.usd]
    days = [f"{value - f.days:+z.1f}" for value in swing.days]
    exact = i.low == i.high
    return (
        f'<tr><td class="t">{escape(i.words)}</td><td>{_valued(i.value, i.unit)}</td>'
        f"<td>{'as given' if exact else f'{_number(i.low)}&ndash;{_number(i.high)}'}</td>"
        f"<td>{'' if exact else '<br>'.join(moves)}</td><td>{'' if exact else '<br>'.join(days)}</td>"
        f'<td class="t note">{escape(i.source)}</td></tr>'
    )


def _valued(value: float, unit: str) -> str:
    """Return a number with its unit: "$310,000", "$4,900/kW", "64&nbsp;hosts"."""
    if unit.startswith("$"):
        return f"${_number(value)}{escape(unit[1:])}"
    return f"{_number(value)}&nbsp;{escape(unit)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
