"""Ids: UUIDv7 whose last bits say in which part the job lies."""

import time
from uuid import UUID

from tenure.jobs.ids import BUCKETS, new_job_id, part_of
from tenure.jobs.tokens import new_tokens, token_digest


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    made = new_job_id(tenant="t", queue="q")
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_are_unique_and_spread_over_all_parts() -> None:
    made = [new_job_id(tenant="t", queue="q") for _ in range(5_000)]
    assert len(set(made)) == len(made)
    assert {part_of(job_id, BUCKETS) for job_id in made} == set(range(BUCKETS))


def test_one_idempotency_key_always_lies_in_one_part() -> None:
    made = [new_job_id(tenant="t", queue=f"q{n}", idempotency_key="k", concurrency_key=f"c{n}") for n in range(50)]
    assert len({part_of(job_id, BUCKETS) for job_id in made}) == 1
    assert len(set(made)) == 50


def test_one_concurrency_key_of_a_queue_always_lies_in_one_part() -> None:
    made = [new_job_id(tenant="t", queue="q", concurrency_key="acct-7") for _ in range(50)]
    assert len({part_of(job_id, BUCKETS) for job_id in made}) == 1


def test_one_part_holds_everything_on_a_plain_server() -> None:
    assert part_of(UUID(int=2**128 - 1)) == 0


def test_tokens_are_128_random_bits_and_stored_as_a_digest_only() -> None:
    tokens = set(new_tokens(1_000))
    assert len(tokens) == 1_000
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)
    token = tokens.pop()
    assert len(token_digest(token)) == 16
    assert token_digest(token) != token_digest(token.upper() if token != token.upper() else token + "x")
