from ottla.pipeline import session

spark = session()
orders = spark.read.format("ottla_log").option("subscribe", "orders").load("data")
orders.selectExpr("partition", "offset", "timestamp", "CAST(value AS STRING)").show()

batches = spark.read.format("ottla_batches").load("data")
batches.groupBy("topic", "magic", "codec").sum("recordCount", "sizeBytes").show()
