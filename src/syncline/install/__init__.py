"""How a fabric is put up: racks, cables, addresses, and the configuration of every switch and host."""
