"""Where numbers come from: one file per kind of counter. A source reads, and gives what it could read."""

from __future__ import annotations
