"""Talking less often: optimizers that average every so many steps, late, through servers, or in one bit."""
