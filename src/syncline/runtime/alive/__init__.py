"""Ranks that live, hang or are lost: heartbeats, verdicts, agreement, checkpoints."""
