"""Connections of the client: frames, versions, addresses, back-off."""
