"""Every step averaged over whoever is there: a lost rank leaves, one that comes back takes its state from a peer."""
