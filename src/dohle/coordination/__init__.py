"""What the coordinators share: effects, timers, and which partition coordinates a key. Pure."""
