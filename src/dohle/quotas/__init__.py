"""How much clients may do: whom a quota concerns, and how long to wait. Pure."""
