"""A first look: a lab in which ranks average gradients while faults come and go, or invented numbers without one."""

from __future__ import annotations
