"""Decide: what a job is for (tokens, deadline, budget), what meets it, with what chance, and what to do."""
