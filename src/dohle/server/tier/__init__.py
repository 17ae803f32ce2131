"""Tiered storage on a broker: copies, expires and reads what ``dohle.tiering`` decides about."""
