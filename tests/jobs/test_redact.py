"""What an error may say."""

import pytest

from tenure.jobs.redact import MAX_MESSAGE_CHARACTERS, fingerprint, redact

CANARY = "s3cr3tCANARY99"


@pytest.mark.parametrize(
    "message",
    [
        f"postgresql://app:{CANARY}@db:5432/x refused",
        f"redis://:{CANARY}@cache/0",
        f"Authorization: Bearer {CANARY}",
        f"headers={{'authorization': 'Basic {CANARY}'}}",
        f"bearer {CANARY}",
        f"api_key={CANARY}&x=1",
        f'{{"api-key": "{CANARY}"}}',
        f"password: '{CANARY}'",
        f"AWS_SECRET_ACCESS_KEY={CANARY}",
        f"client_secret={CANARY}",
        f"access_token={CANARY}",
        f"lease_token={CANARY}",
        f"Set-Cookie: {CANARY}",
        f"sk-{CANARY}",
        f"ghp_{CANARY}",
        f"eyJhbGciOi.{CANARY}.sig",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"{CANARY}@example.com was not found",
    ],
)
def test_secrets_and_addresses_are_taken_out(message: str) -> None:
    assert CANARY not in redact(message)


def test_ordinary_words_stay() -> None:
    message = "upstream answered 502 for /v1/reports/42 after 3 tries; tokens used: 120"
    assert redact(message).startswith("upstream answered 502 for /v1/reports/42 after 3 tries")


def test_a_message_is_bounded_and_storable() -> None:
    assert len(redact("x" * 1_000_000)) == MAX_MESSAGE_CHARACTERS
    stored = redact("a\x00b\ud800c")
    assert "\x00" not in stored
    stored.encode("utf-8")


def test_a_fingerprint_ignores_ids_numbers_times_and_quoted_values() -> None:
    def of(message: str) -> str:
        return fingerprint(kind="k", error_type="E", message=message)

    first = of("row 17 of 'orders' at 2026-01-02T03:04:05Z: 3f2b8c1e-0000-4000-8000-123456789abc not found")
    second = of("row 99 of 'refunds' at 2025-12-31T23:59:59Z: 00000000-1111-4222-8333-444444444444 not found")
    assert first == second
    assert first != of("row 17 was locked")


def test_a_fingerprint_tells_kinds_and_types_apart() -> None:
    assert fingerprint(kind="a", error_type="E", message="m") != fingerprint(kind="b", error_type="E", message="m")
    assert fingerprint(kind="a", error_type="E", message="m") != fingerprint(kind="a", error_type="F", message="m")
