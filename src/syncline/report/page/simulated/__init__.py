"""Simulated messages, flows, buffers and slots."""
