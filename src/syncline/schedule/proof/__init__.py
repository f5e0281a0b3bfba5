"""Proofs that a schedule does its collective, ends, and never overwrites what is still needed."""
