from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer(bootstrap_servers="127.0.0.1:9092")
producer.send("greetings", b"hello").get(timeout=10)

consumer = KafkaConsumer("greetings", bootstrap_servers="127.0.0.1:9092", auto_offset_reset="earliest")
print(next(consumer).value)
