"""When to speak up: rules with thresholds from the fabric, the plan and the job's own past; with hysteresis."""

from __future__ import annotations
