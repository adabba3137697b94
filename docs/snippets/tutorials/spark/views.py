# --8<-- [start:batch]
from ottla.pipeline import session
from pyspark.sql import functions as f

spark = session()
views = (
    spark.read.format("ottla_log")
    .option("subscribe", "views")
    .load("data")
    .select(f.from_json(f.col("value").cast("string"), "user INT, page STRING").alias("view"), "timestamp")
    .select("view.*", "timestamp")
)
views.groupBy("page").agg(f.count("*").alias("views"), f.countDistinct("user").alias("users")).orderBy("page").show()
# --8<-- [end:batch]
# --8<-- [start:stream]
stream = spark.readStream.format("ottla_log").option("startingOffsets", "earliest").option("subscribe", "views")
query = (
    stream.load("data")
    .selectExpr("CAST(key AS STRING) AS user", "CAST(value AS STRING) AS view", "timestamp")
    .writeStream.trigger(availableNow=True)
    .option("checkpointLocation", "checkpoint")
    .start("views.parquet", format="parquet")
)
query.awaitTermination()
print(spark.read.parquet("views.parquet").count(), "views in Parquet")
# --8<-- [end:stream]
