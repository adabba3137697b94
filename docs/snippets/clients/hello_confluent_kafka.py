from confluent_kafka import Consumer, Producer

producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
producer.produce("greetings", b"hello")
producer.flush(10)

consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "me", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
print(consumer.poll(10).value())
consumer.close()
