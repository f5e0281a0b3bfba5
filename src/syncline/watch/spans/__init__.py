"""What the ranks did, as it happens: from the runtime's socket and timelines, NCCL inspector and flight recorder."""

from __future__ import annotations
