"""duckrow: the same row of entries on every machine."""
