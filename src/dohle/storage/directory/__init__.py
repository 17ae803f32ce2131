"""Many logs on several disks: opening, checkpoints, retention and recurring work."""
