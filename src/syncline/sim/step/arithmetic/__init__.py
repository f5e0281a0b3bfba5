"""What the arithmetic of a step takes: kernels, layers, recipes of low precision."""
