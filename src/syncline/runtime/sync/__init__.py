"""Gradient synchronisation: buckets in a codec, averaged behind the backward pass, for DDP and FSDP2."""
