from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer(bootstrap_servers="127.0.0.1:9092", transactional_id="greeter")
producer.init_transactions()
producer.begin_transaction()
producer.send("greetings", b"never seen")
producer.abort_transaction()
producer.begin_transaction()
producer.send("greetings", b"hello")
producer.commit_transaction()

consumer = KafkaConsumer(
    "greetings",
    bootstrap_servers="127.0.0.1:9092",
    auto_offset_reset="earliest",
    isolation_level="read_committed",
)
print(next(consumer).value)
