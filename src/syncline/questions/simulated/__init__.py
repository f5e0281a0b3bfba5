"""What `simulate` answers beside a collective: algorithms, packets, traffic, buffers, time slots."""
