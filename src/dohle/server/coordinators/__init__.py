"""Running the coordinators: their partitions, what they wrote, and who waits for it."""
