from ottla.pipeline import lag, session

spark = session()
orders = (
    spark.readStream.format("ottla_log").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100_000)
)
query = (
    orders.option("subscribe", "orders")
    .load("data")
    .selectExpr("CAST(value AS STRING) AS word", "timestamp")
    .writeStream.trigger(availableNow=True)
    .option("checkpointLocation", "checkpoint")
    .start("orders.parquet", format="parquet")
)
query.awaitTermination()
print("lag:", lag(query.lastProgress).total, "offsets")
