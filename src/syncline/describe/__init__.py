"""What is written by people: units, YAML with its lines, host lists, mistakes in plain words, whole files."""
