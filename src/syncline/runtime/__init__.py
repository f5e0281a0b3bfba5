"""Run it: gradient synchronisation and programs over torch.distributed. The only folder that imports torch."""

from __future__ import annotations
