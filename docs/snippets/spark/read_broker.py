from ottla.pipeline import session

spark = session()
orders = (
    spark.read.format("ottla")
    .option("kafka.bootstrap.servers", "127.0.0.1:9092")
    .option("subscribe", "orders")
    .option("isolationLevel", "read_committed")
    .load()
)
print(orders.where("timestamp > now() - INTERVAL 1 DAY").count())
