"""What people read: text, JSON, pictures and self-contained pages."""
