"""The built extension. Only `syncline.sim` and `syncline.codec` import it; everyone else uses their typed faces."""

from __future__ import annotations

from syncline._native.core import max_min_rates, run_flows

__all__ = ["max_min_rates", "run_flows"]
