"""The account of a predicted step: the same type as a measured step's."""

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
