"""Measure a live cluster (or the lab) and hold it against what its topology should give."""

from __future__ import annotations
