from ottla.pipeline import session, write_exactly_once

spark = session()
options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "copies"}
orders = spark.readStream.format("ottla_log").option("startingOffsets", "earliest").option("subscribe", "orders")
query = (
    orders.load("data")
    .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    .writeStream.trigger(availableNow=True)
    .option("checkpointLocation", "copying")
    .foreachBatch(lambda rows, batch_id: print(write_exactly_once(rows, batch_id, options).to_text()))
    .start()
)
query.awaitTermination()
