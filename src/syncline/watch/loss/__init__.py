"""Packets that no interface counts as lost: which path loses, and at which link."""
