"""The ways from a broker to the active controller, wherever that is."""
