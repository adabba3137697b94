import asyncio

from ottla.client import Producer


async def token() -> str:
    return open("token.jwt").read()  # where your tokens come from; it is called before a token ends


async def main() -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    async with Producer("127.0.0.1:9093", **login, sasl_oauth_token_provider=token) as producer:
        print("offset", (await producer.send_and_wait("hello", b"with a token")).offset)


asyncio.run(main())
