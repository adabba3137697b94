from confluent_kafka import Consumer, Producer

producer = Producer({"bootstrap.servers": "127.0.0.1:9092", "transactional.id": "greeter"})
producer.init_transactions()
producer.begin_transaction()
producer.produce("greetings", b"never seen")
producer.abort_transaction()
producer.begin_transaction()
producer.produce("greetings", b"hello")
producer.commit_transaction()

consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "me", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
print(consumer.poll(10).value())
consumer.close()
