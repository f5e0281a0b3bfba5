"""Healthy hosts as captured trees, and faults to plant in them: what tests and the fault library audit."""

from __future__ import annotations

from tests.auditing.samples.draft import HostDraft
from tests.auditing.samples.hosts import HOSTS

__all__ = ["HOSTS", "HostDraft"]
