"""How collectives are done: one file a family, each with its cost law."""
