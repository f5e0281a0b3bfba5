"""Pages of questions that are part of a verb."""
