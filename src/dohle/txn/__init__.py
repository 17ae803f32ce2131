"""The transaction coordinator. Pure."""
