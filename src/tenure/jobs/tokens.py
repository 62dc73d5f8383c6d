"""Lease tokens: 128 bits from the operating system, shown once; everything else keeps a digest only."""

import hashlib
import secrets

TOKEN_CHARACTERS = 32


TOKEN_DIGEST_BYTES = 16


def new_tokens(count: int) -> list[str]:
    """Fresh lease tokens: 32 lower-case hex digits each, 128 random bits."""
    digits = secrets.token_hex(count * TOKEN_CHARACTERS // 2)
    return [digits[start : start + TOKEN_CHARACTERS] for start in range(0, len(digits), TOKEN_CHARACTERS)]


def token_digest(token: str) -> bytes:
    """What is stored and compared in the token's place, TOKEN_DIGEST_BYTES long: a dump lets nobody settle a job."""
    # Not a password: 128 random bits need no salt and no stretching.
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()[:TOKEN_DIGEST_BYTES]
