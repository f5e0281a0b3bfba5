"""How messages travel between ranks: gloo, collectives of a backend, or the native wire over several rails."""
