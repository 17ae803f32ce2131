"""Consumer groups (KIP-848): heartbeats, reconciliation, and members of the classic protocol."""
