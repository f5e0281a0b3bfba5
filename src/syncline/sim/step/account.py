"""The account of a predicted step, and of one that was executed: the same type as a measured step's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from syncline.sim.step.case import Case
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.timeline.account import Account, StepCause, account_of

LINES = {
    "compute": (StepCause.KERNELS, "layers and head"),
    "optimizer": (StepCause.KERNELS, "optimizer"),
    "codec": (StepCause.KERNELS, "encoding gradients"),
    "tp": (StepCause.NETWORK, "tensor-parallel exchange"),
    "cp": (StepCause.NETWORK, "context-parallel exchange"),
    "ep": (StepCause.NETWORK, "expert all-to-all"),
    "fsdp": (StepCause.NETWORK, "FSDP gathers and scatters"),
    "dp": (StepCause.NETWORK, "gradient exchange"),
    "p2p": (StepCause.NETWORK, "activations between stages"),
    "fixed": (StepCause.LATE, "once a step, stragglers"),
    "bubble": (StepCause.STAGE, "pipeline bubble"),
    "storage": (StepCause.INPUT, "storage"),
    "host": (StepCause.HOST, "routing tokens, offloading"),
}
"""The line of each part of a step's price."""
EXECUTED = (StepCause.NETWORK, "waits that only executing shows")
_FAST_Bps = 1e18


def predicted_account(
    name: str, parts: Mapping[str, float], step_s: float, without_network_s: float | None = None,
    whole: Mapping[str, float] | None = None,
) -> Account:  # fmt: skip
    """Return the account of a step from the parts of its price.

    `whole` is what exchanges take, hidden or not, by part; `without_network_s` the step on a network without limits.
    """
    hidden = {LINES[part]: max(took - parts.get(part, 0.0), 0.0) for part, took in (whole or {}).items()}
    without = {} if without_network_s is None else {StepCause.NETWORK: without_network_s}
    lines = {LINES[part]: seconds for part, seconds in parts.items()}
    return account_of("predicted", step_s, lines, name=name, hidden=hidden, without=without)


def free_network_s(case: Case, k: Constants) -> float:
    """Return the step with exchanges that take no time, inside a domain and outside of it."""
    fast = {name: np.asarray(_FAST_Bps) for name in ("nvlink_Bps", "nic_Bps")}
    fast |= {name: np.asarray(np.inf) for name in ("rack_Bps", "pod_Bps", "site_Bps")}
    laid = {name: np.zeros(()) for name in case.__dataclass_fields__ if name.startswith("laid_")}
    free = replace(case, **fast, **laid, hop_s=np.zeros(()), site_s=np.zeros(()), library=np.zeros(()))
    return float(step_cost(free, replace(k, held=replace(k.held, tp_call_s=0.0, ring_hop_s=0.0))).total)


def executed_account(account: Account, step_s: float) -> Account:
    """Return the account of a step that was executed: what it waits beyond its price, or less, is the network's.

    Without a network there is nothing to execute: that step is the price's.
    """
    parts = {(line.cause, line.what): line.seconds for line in account.lines}
    beyond = step_s - account.step_s
    if beyond >= 0:
        parts[EXECUTED] = beyond
    else:
        waits = {key: value for key, value in parts.items() if key[0] is not StepCause.KERNELS}
        left = max(sum(waits.values()) + beyond, 0.0) / max(sum(waits.values()), 1e-30)
        parts |= {key: value * left for key, value in waits.items()}
        short = step_s / max(sum(parts.values()), 1e-30)
        parts = {key: value * min(short, 1.0) for key, value in parts.items()}
    hidden = {(line.cause, line.what): line.hidden_s for line in account.lines}
    without = {row.cause: min(row.step_s, step_s) for row in account.without}
    return account_of("executed", step_s, parts, name=account.name, hidden=hidden, without=without)
