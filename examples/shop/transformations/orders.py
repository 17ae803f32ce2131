"""Orders come as JSON. Good ones go to a cleaned topic, others to a dead-letter topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dohle.spark.dead_letters import dead_letters, parse_json, valid

spark = SparkSession.active()
BOOTSTRAP = {"kafka.bootstrap.servers": spark.conf.get("dohle.bootstrap")}

ORDER = "order_id string, customer string, product string, quantity int, price double"
CHECKS = {
    "the order has no id": "data.order_id IS NOT NULL",
    "the quantity is not above 0": "data.quantity > 0",
}

dp.create_sink("orders_clean", "dohle", {**BOOTSTRAP, "topic": "shop-orders-clean"})
dp.create_sink("orders_dead", "dohle", {**BOOTSTRAP, "topic": "shop-orders-dead"})


@dp.temporary_view
def orders() -> DataFrame:
    """The source topic, with what was read of each record and what was wrong with it."""
    records = (
        spark.readStream.format("dohle")
        .options(**BOOTSTRAP)
        .option("subscribe", "shop-orders")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    return parse_json(records, ORDER, CHECKS)


@dp.append_flow(target="orders_clean")
def clean() -> DataFrame:
    """Good orders, with their amounts, for other programs to read."""
    amount = f.round(f.col("data.quantity") * f.col("data.price"), 2)
    order = f.col("data").withField("amount", amount)
    return valid(spark.readStream.table("orders")).select("key", f.to_json(order).alias("value"))


@dp.append_flow(target="orders_dead")
def dead() -> DataFrame:
    """Bad orders as they came; `dohle pipeline replay shop-orders-dead` sends them again."""
    return dead_letters(spark.readStream.table("orders"), pipeline="shop")
