"""Serving: prefill and decode under a load, and what the network costs of it."""
