"""A cluster built and compared: racks, cables, files."""
