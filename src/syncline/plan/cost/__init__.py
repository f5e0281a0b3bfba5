"""What a cluster and a job cost: owned or rented, per step, token and run, with failures and with sources."""

from __future__ import annotations

from syncline.plan.cost.assumptions import Assumptions, load_assumptions
from syncline.plan.cost.break_even import BreakEven, break_even, break_even_rent
from syncline.plan.cost.budget import Bought, buy
from syncline.plan.cost.failures import Outlook, outlook
from syncline.plan.cost.owning import Owning, own
from syncline.plan.cost.payback import Payback, payback, saving_from_bandwidth, time_saved_for_payback
from syncline.plan.cost.prices import Price, Prices, load_prices
from syncline.plan.cost.reliability import FailureRate, Reliability, load_reliability
from syncline.plan.cost.renting import Quote, gpu_models, rent
from syncline.plan.cost.statement import CostedRun, Statement, statement
from syncline.plan.cost.step_cost import (
    cost_per_run,
    cost_per_step,
    cost_per_token,
    gpu_hours_lost_per_day,
    usd_lost_per_day,
)
from syncline.plan.cost.storage import StorageNeed, storage_need

__all__ = [
    "Assumptions",
    "Bought",
    "BreakEven",
    "CostedRun",
    "FailureRate",
    "Outlook",
    "Owning",
    "Payback",
    "Price",
    "Prices",
    "Quote",
    "Reliability",
    "Statement",
    "StorageNeed",
    "break_even",
    "break_even_rent",
    "buy",
    "cost_per_run",
    "cost_per_step",
    "cost_per_token",
    "gpu_hours_lost_per_day",
    "gpu_models",
    "load_assumptions",
    "load_prices",
    "load_reliability",
    "outlook",
    "own",
    "payback",
    "rent",
    "saving_from_bandwidth",
    "statement",
    "storage_need",
    "time_saved_for_payback",
    "usd_lost_per_day",
]
