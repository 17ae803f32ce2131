"""``python -m dohle``: the same as the ``dohle`` command."""

from dohle.cli.main import main

raise SystemExit(main())
