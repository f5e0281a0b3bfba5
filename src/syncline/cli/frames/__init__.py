"""The frames of a watch at the command line: where they come from, and what happens with them until it ends."""
