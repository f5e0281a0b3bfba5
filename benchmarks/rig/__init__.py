"""The runtime's rig: four hosts of namespaces, a model, ways to synchronise it."""
