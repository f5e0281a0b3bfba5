"""A first look: a small lab in which a network is trained while faults come and go, or invented numbers without one."""

from __future__ import annotations
