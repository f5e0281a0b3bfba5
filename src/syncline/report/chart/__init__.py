"""Charts that several pages share."""
