"""Payments in, judged payments out: a Python function for each, on Spark, exactly once."""

import argparse
import json
import os
from contextlib import suppress

import dohle.spark

LIMIT = 5000


def judge(value: bytes | None) -> str:
    """Return a payment with what is thought of it; one without an amount is an error."""
    payment = json.loads(value or b"")
    payment["is_suspicious"] = payment["amount"] > LIMIT
    return json.dumps(payment)


def main() -> None:
    """Start the stream, and wait for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watch", action="store_true", help="go on with new payments")
    parser.add_argument("--checkpoint", default="./judge-checkpoint")
    args = parser.parse_args()
    query = dohle.spark.stream(
        "payments",
        "payments-judged",
        function=judge,
        dead_letters="payments-dead",
        bootstrap=os.environ.get("DOHLE_BOOTSTRAP", "localhost:9092"),
        checkpoint=args.checkpoint,
        stop_at_end=not args.watch,
        name="judge",
    )
    with suppress(KeyboardInterrupt):
        query.awaitTermination()
    query.stop()


if __name__ == "__main__":
    main()
