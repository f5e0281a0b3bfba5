"""Texts of questions that are part of a verb."""
