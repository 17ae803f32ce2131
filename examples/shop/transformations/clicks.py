"""Clicks come as JSON. Those that cannot be read are of no interest."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from dohle.spark.dead_letters import parse_json, valid

spark = SparkSession.active()


@dp.temporary_view
def clicks() -> DataFrame:
    """The source topic, read as far as it can be."""
    records = (
        spark.readStream.format("dohle")
        .option("kafka.bootstrap.servers", spark.conf.get("dohle.bootstrap"))
        .option("subscribe", "shop-clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    return valid(parse_json(records, "customer string, product string"))
