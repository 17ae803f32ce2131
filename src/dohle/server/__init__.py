"""The shell: sockets, timers and files around the pure machines."""
