"""The server-side assignors of consumer groups."""
