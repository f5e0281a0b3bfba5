"""The price of one training step on a fabric."""
