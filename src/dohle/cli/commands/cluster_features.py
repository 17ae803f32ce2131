"""``dohle cluster features``: the levels of features, shown and changed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.errors import UsageError
from dohle.cli.options import Commands, add_client_options, add_command, natural, pair
from dohle.cli.session import with_admin

if TYPE_CHECKING:
    from dohle.client import Admin

_FEATURES = """\
Show the features of the cluster with their levels: what is finalized, and what
the broker supports. With --upgrade or --downgrade, finalize other levels: all of
them, or none.
"""
_FEATURES_EXAMPLES = """\
examples:
  dohle cluster features
  dohle cluster features --upgrade metadata.version=29 --upgrade group.version=1
  dohle cluster features --downgrade metadata.version=28 --dry-run
"""


def add_parser(family: Commands) -> None:
    """Declare the command."""
    help = "show and change the levels of features"
    parser = add_command(family, "features", help, _FEATURES, _FEATURES_EXAMPLES)
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--upgrade",
        type=_level,
        action="append",
        metavar="NAME=LEVEL",
        help="raise a feature to this level; may be repeated",
    )
    change.add_argument(
        "--downgrade",
        type=_level,
        action="append",
        metavar="NAME=LEVEL",
        help="lower a feature to this level, 0 to switch it off; may be repeated",
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="downgrade even if metadata is lost by it"
    )
    parser.add_argument("--dry-run", action="store_true", help="only check whether it would work")
    add_client_options(parser)
    parser.set_defaults(run=_run)


def _level(text: str) -> tuple[str, int]:
    name, level = pair(text)
    return name, natural(level)


def _run(args: argparse.Namespace) -> int:
    if args.unsafe and not args.downgrade:
        raise UsageError("--unsafe is for --downgrade")
    if args.dry_run and not (args.upgrade or args.downgrade):
        raise UsageError("--dry-run is for --upgrade and --downgrade")
    return with_admin(args, _change if args.upgrade or args.downgrade else _show)


async def _show(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.output import print_rows

    print_rows(await feature_rows(admin), as_json=args.json, if_empty="no features")
    return 0


async def feature_rows(admin: Admin) -> list[dict[str, object]]:
    """Return a row for each feature that the broker supports."""
    features = await admin.describe_features()
    return [
        {
            "feature": name,
            "finalized": features.finalized.get(name, (None, None))[1],
            "minSupported": lowest,
            "maxSupported": highest,
        }
        for name, (lowest, highest) in sorted(features.supported.items())
    ]


async def _change(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.output import print_rows
    from dohle.client import UpgradeType

    kind = UpgradeType.UPGRADE
    if args.downgrade:
        kind = UpgradeType.UNSAFE_DOWNGRADE if args.unsafe else UpgradeType.SAFE_DOWNGRADE
    levels = dict(args.upgrade or args.downgrade)
    await admin.update_features(levels, upgrade_type=kind, validate_only=args.dry_run)
    result = "possible" if args.dry_run else "done"
    rows = [{"feature": name, "level": level, "result": result} for name, level in levels.items()]
    print_rows(rows, as_json=args.json, if_empty="")
    return 0
