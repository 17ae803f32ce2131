"""Kafka's messages, as declarations; :mod:`dohle.protocol.apis` finds them."""
