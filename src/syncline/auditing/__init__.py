"""From a host, a captured tree or a log to Findings."""

from __future__ import annotations
