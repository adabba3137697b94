# --8<-- [start:batch]
from ottla.pipeline import session
from pyspark.sql import functions as f

spark = session()
log = spark.read.format("ottla_log").option("subscribe", "views").load("data")
view = f.from_json(f.col("value").cast("string"), "user INT, page STRING")
by_page = log.select(view.alias("view")).groupBy("view.page")
counts = by_page.agg(f.count("*").alias("views"), f.countDistinct("view.user").alias("users"))
counts.orderBy("page").show()
# --8<-- [end:batch]
# --8<-- [start:stream]
stream = spark.readStream.format("ottla_log").option("subscribe", "views")
query = (
    stream.option("startingOffsets", "earliest")
    .load("data")
    .selectExpr("CAST(value AS STRING) AS view", "timestamp")
    .writeStream.trigger(availableNow=True)
    .option("checkpointLocation", "checkpoint")
    .start("views.parquet", format="parquet")
)
query.awaitTermination()
print(spark.read.parquet("views.parquet").count(), "views in Parquet")
# --8<-- [end:stream]
