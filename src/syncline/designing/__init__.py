"""The fabric for a job: which network, of which parts, is worth its money, its power and its risk."""
