"""The shell: sockets, timers and files around the pure machines. Reading order in ARCHITECTURE.md."""
