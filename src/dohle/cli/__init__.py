"""The ``dohle`` command: a file for each family of commands, ``dump_*`` for ``dohle log dump``."""
