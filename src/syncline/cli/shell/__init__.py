"""What every verb stands on: the start, the list of verbs, options, output, and a script run as ranks."""
