from confluent_kafka import Producer

settings = {"bootstrap.servers": "127.0.0.1:9093", "security.protocol": "SSL", "ssl.ca.location": "ca.pem"}
producer = Producer(settings)
producer.produce("hello", "over TLS")
print("unsent:", producer.flush(10))
