"""Checking what clients of a cluster have seen: histories, and what must hold of them.

It knows no simulator and no broker: a history can come from virtual time, from processes that are
killed, or from Apache Kafka.
"""
