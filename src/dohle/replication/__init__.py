"""A partition as its leader and its followers see it, and the requests that wait for it. Pure."""
