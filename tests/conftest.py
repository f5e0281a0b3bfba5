"""Settings every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Shared machines are slow at times: a deadline would fail a good test. `HYPOTHESIS_PROFILE=deep` searches longer.
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", parent=settings.get_profile("quick"), max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
