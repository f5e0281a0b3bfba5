"""What single kernels take on a GPU: convolutions, attention, and what moves memory."""
