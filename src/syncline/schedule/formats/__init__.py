"""Schedules to and from files: JSON (lossless) and MSCCL XML."""
