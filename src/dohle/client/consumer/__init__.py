"""The consumer: fetching, positions, look-up of offsets."""
