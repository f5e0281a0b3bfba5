"""The one engine that reads lines: their form, time, host, part and severity, and the rules that know what they mean.

`diagnose`, `audit` and `watch` ask it; rules are data (`rules/`), read in one pass with bounded memory.
"""
