"""Stand-ins for the machine under test: a disk that fails on command."""
