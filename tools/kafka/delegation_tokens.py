"""`ottla delegation-tokens`: creates, renews, expires and describes delegation tokens, with the flags and output of
kafka-delegation-tokens.

Owns the flags and the layout of that tool; dates are in local time. `--json` prints `{"tokens": [...]}` for --create
and --describe, with `token_id, hmac, owner, requester, renewers, issue_ms, expiry_ms, max_ms`, and `{"expiry_ms": ...}`
for --renew and --expire. The secret of a token is part of the output, as in Kafka's tool: it is the password of a
login.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from ...client.admin.admin import Admin, DelegationToken
from ...protocol.arguments import Parser
from ...protocol.limits import INT64_MAX, INT64_MIN
from .admin_command import Out, admin_parser, check_principals, padded, parsed, run_admin

PROGRAM = "ottla delegation-tokens"
ACTIONS = {
    "create": "issue a token",
    "renew": "move the expiry of a token further away",
    "expire": "move the expiry of a token, or remove it",
    "describe": "print tokens",
}
WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)
HEADINGS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
# The flags that an action does not have.
NOT_WITH = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("renewer_principal", "max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renewer_principal", "renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
DEFAULT_MS = -1


def delegation_tokens(arguments: Sequence[str]) -> int:
    parser = admin_parser(PROGRAM, "Create, renew, expire and describe delegation tokens.", ACTIONS)
    for flag, text in (
        ("owner-principal", "the owner; with --describe the owner, requester or a renewer (default: of all)"),
        ("renewer-principal", "a principal that may renew and expire the token"),
    ):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="TYPE:NAME", help=text)
    for flag, text in (
        ("max-life-time-period", "the life of the token (default: -1, delegation.token.max.lifetime.ms)"),
        ("renew-time-period", "the time to the new expiry (default: -1, delegation.token.expiry.time.ms)"),
        ("expiry-time-period", "the time to the new expiry (default: -1, the token is removed)"),
    ):
        parser.add_argument(f"--{flag}", type=int, metavar="MS", help=text)
    parser.add_argument("--hmac", metavar="BASE64", help="the secret of the token")
    args = parsed(parser, arguments, ACTIONS, _check)
    act = _create if args.create else _describe if args.describe else _move_expiry
    return run_admin(PROGRAM, args, act)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    action = next(action for action in ACTIONS if getattr(args, action))
    for name in NOT_WITH[action]:
        if getattr(args, name) not in (None, []):
            parser.error(f"--{action} cannot be combined with --{name.replace('_', '-')}")
    for name in ("max_life_time_period", "renew_time_period", "expiry_time_period"):
        value = getattr(args, name)
        if value is None:
            setattr(args, name, DEFAULT_MS)
        elif not INT64_MIN <= value <= INT64_MAX:
            parser.error(f"--{name.replace('_', '-')} is out of range: {value}")
    check_principals(parser, (*args.owner_principal, *args.renewer_principal))
    args.owners = [principal.strip() for principal in args.owner_principal]
    args.renewers = [principal.strip() for principal in args.renewer_principal]
    if action in ("renew", "expire"):
        if args.hmac is None:
            parser.error(f"--{action} needs --hmac")
        try:
            args.secret = base64.b64decode(args.hmac, validate=True)
        except (binascii.Error, ValueError):
            parser.error("--hmac is not in Base64")


# Actions


async def _create(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    life_ms = args.max_life_time_period
    call = f"Calling create token operation with renewers :{_listed(args.renewers)} , max-life-time-period :{life_ms}\n"
    owner = args.owners[0] if args.owners else None
    token = await admin.create_delegation_token(args.renewers, owner=owner, max_lifetime_ms=life_ms)
    made = f"Created delegation token with tokenId : {token.token_id}\n"
    out.show({"tokens": [_document(token)]}, [call, made, *_rows([token])])


async def _move_expiry(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    if args.renew:
        action, move, period_ms = "renew", admin.renew_delegation_token, args.renew_time_period
    else:
        action, move, period_ms = "expire", admin.expire_delegation_token, args.expiry_time_period
    call = f"Calling {action} token operation with hmac :{args.hmac} , {action}-time-period :{period_ms}\n"
    expiry_ms = await move(args.secret, period_ms)
    done = f"Completed {action} operation. New expiry date : {_date(expiry_ms)}\n"
    out.show({"expiry_ms": expiry_ms}, [call, done])


async def _describe(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    if args.owners:
        call = f"Calling describe token operation for owners: {_listed(args.owners)}\n"
    else:
        call = "Calling describe token operation for current user.\n"
    tokens = await admin.describe_delegation_tokens(args.owners or None)
    count = f"Total number of tokens : {len(tokens)}"
    out.show({"tokens": [_document(token) for token in tokens]}, [call, count, *_rows(tokens)])


# Output


def _rows(tokens: Sequence[DelegationToken]) -> list[str]:
    """Returns the table; each line follows an empty one, as in Kafka's tool."""
    return [f"\n{padded(cells, WIDTHS)}\n" for cells in (HEADINGS, *map(_cells, tokens))]


def _cells(token: DelegationToken) -> list[str]:
    requester = ":" if token.requester is None else token.requester
    names = [token.token_id, token.password, token.owner, requester, _listed(token.renewers)]
    return [*names, *(_date(ms) for ms in (token.issue_ms, token.expiry_ms, token.max_ms))]


def _listed(principals: Sequence[str]) -> str:
    return f"[{', '.join(principals)}]"


def _date(ms: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M", time.localtime(ms // 1000))
    except (OverflowError, ValueError, OSError):  # the lifetimes of a broker may be longer than the calendar
        return str(ms)


def _document(token: DelegationToken) -> dict[str, Any]:
    return {**dataclasses.asdict(token), "hmac": token.password}
