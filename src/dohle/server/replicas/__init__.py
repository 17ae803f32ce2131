"""Replication: copying what other brokers lead, and keeping the ISRs of what this one leads."""
