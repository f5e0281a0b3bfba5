"""Configurations of switches, one file a system."""
