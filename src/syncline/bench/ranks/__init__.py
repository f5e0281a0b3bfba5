"""The ranks that measure: how they meet, whether packets reach them, what lies between them."""
