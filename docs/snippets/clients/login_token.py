import asyncio

from ottla.client import Admin, Producer

broker = {"bootstrap.servers": "127.0.0.1:9093", "security.protocol": "SASL_PLAINTEXT"}
ann = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "ann-secret"}


async def main():
    async with Admin.from_config({**broker, **ann}) as admin:
        token = await admin.create_delegation_token(renewers=["User:joe"])
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{token.token_id}" password="{token.password}" tokenauth="true";'
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    async with Producer.from_config({**broker, **login}) as producer:
        await producer.send_and_wait("hello", b"by a worker that has no password")
    print("a token of", token.owner)


asyncio.run(main())
