"""Moving a replica from one log directory to another."""
