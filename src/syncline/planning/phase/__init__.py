"""Runs of several phases: each planned for itself, one calendar and one bill."""
