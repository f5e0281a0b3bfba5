"""Predictions beside published measurements and claims."""
