"""What an error may say: secrets and addresses are taken out, the rest is bounded, and a fingerprint groups its like."""

import hashlib
import re

MAX_MESSAGE_CHARACTERS = 2_000
"""Long enough for a database's or an API's own words, short enough that 10,000 dead letters stay readable and small."""

_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host, and scheme://:password@host
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://[^\s/:@]{0,256}):[^\s/@]{1,1024}@"), r"\1:[redacted]@"),
    # Authorization headers in any spelling, then bare bearer tokens
    (
        re.compile(r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?(?:basic|bearer|digest|token)?\s*)[^\s'\",;]{4,}"),
        r"\1[redacted]",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{6,}"), r"\1[redacted]"),
    # key=value and "key": "value" where the name says that it is secret
    (
        re.compile(
            r"(?i)((?:api[_-]?key|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access)?[_-]?key)?|client[_-]?secret|"
            r"(?:access|refresh|id|auth|session|lease)?[_-]?token|password|passwd|pwd|passphrase|credential|signature|cookie)"
            r"['\"]?\s*[:=]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s'\",;&)}\]]+)"
        ),
        r"\1[redacted]",
    ),
    # well-known shapes: JWT, AWS, GitHub, Slack, Stripe and the likes of sk-…
    (re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"), "[redacted]"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "[redacted]"),
    (
        re.compile(
            r"\b(?:gh[pousr]_|github_pat_|xox[abprs]-|sk-|sk_live_|sk_test_|rk_live_|pk_live_)[A-Za-z0-9_-]{8,}"
        ),
        "[redacted]",
    ),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
        "[redacted key]",
    ),
    (re.compile(r"(?i)\b[a-z0-9._%+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+\b"), "[redacted e-mail]"),
)

_VARIABLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"), "<time>"),
    (re.compile(r"(?i)\b0x[0-9a-f]+\b"), "<hex>"),
    (re.compile(r"(?i)\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "<text>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def redact(text: str) -> str:
    """Takes out what must not be stored, makes the rest storable (no NUL, no lone surrogate) and bounds its length."""
    # Cut before matching, too: patterns over an unbounded message would let a handler burn this process's time.
    text = text[: MAX_MESSAGE_CHARACTERS * 4].encode("utf-8", "replace").decode("utf-8").replace("\x00", "�")
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    if len(text) > MAX_MESSAGE_CHARACTERS:
        text = text[: MAX_MESSAGE_CHARACTERS - 1] + "…"
    return text


def fingerprint(*, kind: str, error_type: str | None, message: str) -> str:
    """The same 16 hex digits for errors that differ only in ids, numbers, times and quoted values."""
    for pattern, replacement in _VARIABLE:
        message = pattern.sub(replacement, message)
    words = "\x00".join((kind, error_type or "", message.strip().lower()))
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()
