"""Write orders and clicks, some every second, until Ctrl-C: ``generate.py [HOST:PORT]``."""

import asyncio
import json
import random
import sys
from contextlib import suppress
from itertools import count

from dohle.client import Cluster, Producer

PRICES = {"apples": 0.5, "figs": 2.0, "pears": 0.8, "plums": 1.2}
CUSTOMERS = ["ann", "ben", "cia", "dan", "eve"]
CLICKS_PER_SECOND = 20
ORDERS_PER_CLICK = 0.25
BAD_ORDERS = 0.05


async def generate(bootstrap: str) -> None:
    """Write until cancelled."""
    numbers = count(1)
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        while True:
            customer = random.choice(CUSTOMERS)
            product = random.choice(list(PRICES))
            click = {"customer": customer, "product": product}
            value = json.dumps(click).encode()
            await producer.send_soon("shop-clicks", value, key=customer.encode())
            if random.random() < ORDERS_PER_CLICK:
                value = new_order(next(numbers), customer, product)
                await producer.send_soon("shop-orders", value, key=customer.encode())
            await asyncio.sleep(1 / CLICKS_PER_SECOND)


def new_order(number: int, customer: str, product: str) -> bytes:
    """Return an order, now and then one that is of no use."""
    if random.random() < BAD_ORDERS:
        return random.choice([b"not JSON", b'{"product": "no id"}'])
    order = {
        "order_id": f"o-{number}",
        "customer": customer,
        "product": product,
        "quantity": random.randint(1, 5),
        "price": PRICES[product],
    }
    return json.dumps(order).encode()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(generate(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
