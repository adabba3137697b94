"""The options of the producer: names, bounds, defaults, and dependencies between them.

`enable_idempotence` has the values of KIP-192: "required" (an error if the broker or topic does not support it),
"requested" (used if supported) and "off". True ("required") and False ("off") are deprecated. The default is
"requested", which never fails a write that would succeed without idempotence.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from ...protocol.limits import INT32_MAX, INT64_MAX
from ..net.errors import ConfigError
from ..net.options import ClientOptions, check_name, check_range, ranged
from .batches import CODECS, RECORD_BYTES_MAX_OVERHEAD

MODES = ("required", "requested", "off")
_OLD_MODES = {True: "required", False: "off", "true": "required", "false": "off"}
# As in Kafka (KIP-390); gzip's -1 is its own default.
_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-(1 << 17), 22)}
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """The options of a producer, in addition to those of all clients. Raises ConfigError.

    After construction `acks` is -1, 0 or 1 and `enable_idempotence` one of the three modes, "off" with acks=0 and
    "required" with a `transactional_id`.
    """

    acks: int | str = "all"
    enable_idempotence: bool | str = "requested"
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None
    compression_level: int | None = None
    batch_size: int = ranged(16384, 0)
    linger_ms: float = 0
    max_request_size: int = ranged(1048576, 128)
    buffer_memory: int = ranged(32 << 20, RECORD_BYTES_MAX_OVERHEAD, INT64_MAX)
    max_block_ms: int = ranged(60_000, 0, INT64_MAX)
    retries: int = ranged(INT32_MAX, 0)
    delivery_timeout_ms: int = ranged(120_000, 1)
    max_in_flight_requests_per_connection: int = ranged(5, 1)
    transactional_id: str | None = None
    transaction_timeout_ms: int = ranged(60_000, 1)

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        if self.acks not in _ACKS or self.acks is True or self.acks is False:
            raise ConfigError(f"acks must be 0, 1 or all, not {self.acks!r}")
        object.__setattr__(self, "acks", _ACKS[self.acks])
        self._read_mode()
        if self.transactional_id is not None:
            check_name("transactional_id", self.transactional_id)
            if self.acks != -1:
                raise ConfigError("transactional.id needs acks=all")
            if self.enable_idempotence == "off":
                raise ConfigError("transactional.id cannot be combined with enable.idempotence=off")
            object.__setattr__(self, "enable_idempotence", "required")
        if self.compression_type not in CODECS:
            raise ConfigError(
                f"compression.type must be one of {', '.join(map(str, CODECS))}, not {self.compression_type!r}"
            )
        if self.compression_level is not None:
            low_high = _LEVELS.get(str(self.compression_type))
            if low_high is None:
                types = ", ".join(_LEVELS)
                raise ConfigError(f"compression.level needs compression.type {types}, not {self.compression_type}")
            check_range("compression_level", self.compression_level, *low_high)
        if isinstance(self.linger_ms, bool) or not 0 <= self.linger_ms <= INT32_MAX:
            raise ConfigError(f"linger.ms must be 0 or more, not {self.linger_ms!r}")
        if self.delivery_timeout_ms < self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms ({self.delivery_timeout_ms}) must be at least"
                f" request.timeout.ms ({self.request_timeout_ms})"
            )

    def _read_mode(self) -> None:
        given = self.enable_idempotence
        mode = given.lower() if isinstance(given, str) else given
        if isinstance(mode, bool) or mode in ("true", "false"):
            old, mode = mode, _OLD_MODES[mode]
            # stacklevel 5 is the caller of __init__.
            warnings.warn(
                f"enable.idempotence={old} is deprecated: use {mode!r} (KIP-192)", DeprecationWarning, stacklevel=5
            )
        if mode not in MODES:
            raise ConfigError(f"enable.idempotence must be one of {', '.join(MODES)}, not {given!r}")
        if self.acks == 0:
            if mode == "required":
                raise ConfigError("enable.idempotence=required cannot be combined with acks=0")
            mode = "off"
        object.__setattr__(self, "enable_idempotence", mode)
