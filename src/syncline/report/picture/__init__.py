"""Drawing a fabric: what is equal in it, where things stand, and the text of the picture."""
