"""How bytes shrink: what each scheme costs, and the schemes themselves."""
