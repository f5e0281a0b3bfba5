"""The command line: one file per verb, and the only folder that prints or exits."""
