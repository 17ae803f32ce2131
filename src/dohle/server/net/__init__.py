"""From socket to request and back: listener, connection, dispatch."""
