"""Live telemetry: counters and spans in, alerts and Timelines out, the prediction beside them."""

from __future__ import annotations
