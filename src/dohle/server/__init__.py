"""The shell: the sockets, timers and files around the pure state machines."""
