"""Answers as self-contained pages."""
