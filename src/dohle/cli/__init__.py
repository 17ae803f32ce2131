"""The ``dohle`` command. Modules named ``dump_*`` are the parts of ``dohle log dump``."""
