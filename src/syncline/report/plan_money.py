"""The cost section of the plan report: what a token costs, owned and rented, and where the money goes."""

from __future__ import annotations

from html import escape

from syncline.describe import units
from syncline.plan.answer import PlanResult
from syncline.plan.cost.charge import cost_per_token
from syncline.report.chart.bars import bars, stacked
from syncline.report.text.check.run import recovery_line
from syncline.report.text.plan import per_million

_COLOURS = {
    "hosts": "#3f73c7", "network": "#2d7f6a", "financing": "#7c3aed", "maintenance": "#b7791f", "facility": "#6b7280",
    "racks": "#8f98a3", "power": "#e08a1e", "people": "#be185d",
}  # fmt: skip


def money_section(answer: PlanResult) -> str:
    """Return owned against rented, the yearly money of owning, and failures."""
    money, plan = answer.money, answer.best
    if money is None or plan.cost is None:
        return f"<p class='note'>{escape(answer.notes[0] if answer.notes else 'Not priced.')}</p>"
    account, step = money.account, plan.predicted.step_time_s
    rates = [("owned", account.owned.usd_per_gpu_hour)]
    rates += [(q.label, q.usd_per_used_gpu_hour(money.utilisation)) for q in account.quotes]
    rows = []
    for name, rate in sorted(rates, key=lambda pair: pair[1]):
        token = cost_per_token(step, plan.tokens_per_step, rate, plan.num_gpus, plan.cost.goodput)
        rows.append((name, token, f"{per_million(token)} ({units.show_money(rate)}/h)"))
    owned = account.owned
    yearly = sorted(owned.yearly().items(), key=lambda item: -item[1])
    bar = stacked([(name, value, _COLOURS.get(name, "#777")) for name, value in yearly], owned.usd_per_year)
    share = f"{owned.network_share_of_capital:.0%} of the capital is network ({units.show_money(owned.network_usd)} of "
    share += f"{units.show_money(owned.capital_usd)})."
    failed = f"Goodput {escape(recovery_line(money.recovery(step, plan.num_gpus)))}."
    trillion = units.show_money(plan.cost.cost_per_token_usd * 1e12)
    days = 1e12 / plan.predicted.tokens_per_s / plan.cost.goodput / 86400
    return (
        f"<p>A trillion tokens cost <b>{trillion}</b> ({escape(plan.cost.basis)}) and take <b>{days:,.0f} days</b>. "
        f"{failed}</p>"
        '<div class="two"><section><h3>A million tokens, owned and rented (and a GPU-hour)</h3>'
        f"{bars(rows, '#2d7f6a')}</section><section><h3>Owning, {units.show_money(owned.usd_per_year)} a year</h3>"
        f'{bar}<p class="note">{share} Assumed: {owned.assumptions.years:g} years, used '
        f"{owned.assumptions.utilisation:.0%} of the time, PUE {owned.assumptions.pue:g}, "
        f"${owned.assumptions.power_usd_per_kWh:g} per kWh. Prices: {escape(account.prices_source)}.</p>"
        "</section></div>"
    )
