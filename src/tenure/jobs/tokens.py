"""Lease tokens: 128 bits from the operating system, shown once; everything else keeps a digest only."""

import hashlib
import secrets

TOKEN_CHARACTERS = 32


def new_token() -> str:
    """A fresh lease token: 32 lower-case hex digits, 128 random bits."""
    return secrets.token_hex(16)


def token_digest(token: str) -> bytes:
    """What is stored and compared in the token's place (16 bytes): a dump of the database lets nobody settle a job."""
    # Not a password: 128 random bits need no salt and no stretching.
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()[:16]
