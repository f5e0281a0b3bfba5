"""What runs inside a lab; it imports neither NumPy nor the fabric, so that a lab starts at once."""
