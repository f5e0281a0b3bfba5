"""A choice of synchronisation that is measured, tried and held."""
