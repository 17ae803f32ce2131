"""A file for each family of commands."""
