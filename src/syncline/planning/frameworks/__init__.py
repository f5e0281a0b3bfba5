"""What frameworks demand of a plan, and the files that start it there."""
