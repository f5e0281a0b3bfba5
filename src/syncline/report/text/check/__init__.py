"""What checks, rehearsals and runs print."""
