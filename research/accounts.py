"""Accounts of 300 random asks: do parts add up to the step, and does a free network save what the account says?

    python -m research accounts              200 steps, 40 plans and 60 previews, a minute
    FIRST_SEED=5000 python -m research accounts

`tests/questions/accounts.py` has the rules and draws the asks: every way to split, sum, compress, store and offload,
executed or by closed forms.
"""

from __future__ import annotations

import os
from typing import Any

from tests.questions.accounts import broken_asks

FIRST_SEED = int(os.environ.get("FIRST_SEED", "4000"))
WANTED = {"step": 200, "plan": 40, "preview": 60}


def run() -> dict[str, Any]:
    """Return how many asks were answered, and every rule that one broke."""
    found = {kind: broken_asks(kind, wanted, FIRST_SEED) for kind, wanted in WANTED.items()}
    rules = {f"{kind} {seed}": wrong for kind, (_, each) in found.items() for seed, wrong in each.items()}
    return {"answered": {kind: count for kind, (count, _) in found.items()}, "broken": len(rules), "rules": rules}
