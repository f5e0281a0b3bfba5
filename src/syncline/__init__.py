"""syncline: plan, rehearse, run, check and watch the network side of distributed AI training."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
