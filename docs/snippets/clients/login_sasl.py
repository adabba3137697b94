from confluent_kafka import Producer

settings = {"bootstrap.servers": "127.0.0.1:9093", "security.protocol": "SASL_PLAINTEXT"}
plain = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "ann-secret"}
scram = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "joe", "sasl.password": "joe-secret"}
for login in (plain, scram):
    producer = Producer({**settings, **login})
    producer.produce("hello", login["sasl.username"])
    print(login["sasl.mechanism"], "unsent:", producer.flush(10))
