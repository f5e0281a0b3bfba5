"""Cost by emulation: a described fabric out of Linux namespaces and shaped links, and what runs on it."""

from __future__ import annotations
