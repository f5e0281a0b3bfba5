"""Predicted against measured, on an emulated copy of the fabric: calibrate, predict, run, compare."""

from __future__ import annotations
