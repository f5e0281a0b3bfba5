"""Cost by calculation: models that turn programs over a fabric into timelines."""
