"""One example of everything, for the OpenAPI document; a test holds each against its schema."""

from typing import Any

JOB_ID = "0198f3a0-7c1e-7b5e-9d53-1f0f3f6c0a11"
OTHER_ID = "0198f3a0-7c1f-7a20-8c11-64d0f1b2c3d4"
TOKEN = "9f2c4be81a6d4b0f8a53c7e2d1b09a44"  # noqa: S105 - an example
SHA256 = "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"

ENQUEUE: dict[str, Any] = {
    "smallest": {"kind": "demo.sleep", "payload": {"duration_ms": 500}},
    "everything": {
        "kind": "report.export",
        "payload": {"report": "orders", "parameters": {"since": "2030-01-01"}, "format": "csv"},
        "queue": "exports",
        "priority": 10,
        "delay_seconds": 5,
        "max_attempts": 5,
        "timeout_seconds": 300,
        "expires_in_seconds": 3600,
        "lease_seconds": 30,
        "schema_version": 1,
        "idempotency_key": "orders-2030-01",
        "concurrency_key": "customer-17",
        "tags": ["monthly", "finance"],
        "metadata": {"ticket": "FIN-12"},
    },
}

QUEUED_JOB: dict[str, Any] = {
    "id": JOB_ID,
    "kind": "demo.sleep",
    "queue": "default",
    "state": "queued",
    "version": 1,
    "priority": 0,
    "schema_version": 1,
    "payload": {"duration_ms": 500},
    "result": None,
    "progress": None,
    "tags": [],
    "metadata": {},
    "attempts": 0,
    "max_attempts": 3,
    "available_at": "2030-01-31T12:00:00.000000Z",
    "timeout_seconds": None,
    "deadline_at": None,
    "lease_seconds": None,
    "lease": None,
    "cancellation": None,
    "last_error": None,
    "idempotency_key": None,
    "concurrency_key": None,
    "tenant": "default",
    "submitted_by": None,
    "created_at": "2030-01-31T12:00:00.000000Z",
    "updated_at": "2030-01-31T12:00:00.000000Z",
    "started_at": None,
    "finished_at": None,
    "traceparent": None,
}

RUNNING_JOB: dict[str, Any] = QUEUED_JOB | {
    "state": "running",
    "version": 2,
    "attempts": 1,
    "progress": {"fraction": 0.4, "message": "2 of 5 files", "at": "2030-01-31T12:00:11.250000Z"},
    "lease": {
        "worker_id": "host-7:4711:5f2a",
        "acquired_at": "2030-01-31T12:00:01.250000Z",
        "expires_at": "2030-01-31T12:00:41.250000Z",
        "heartbeat_at": "2030-01-31T12:00:11.250000Z",
        "heartbeats": 1,
    },
    "updated_at": "2030-01-31T12:00:01.250000Z",
    "started_at": "2030-01-31T12:00:01.250000Z",
}

SUCCEEDED_JOB: dict[str, Any] = QUEUED_JOB | {
    "state": "succeeded",
    "version": 3,
    "attempts": 1,
    "result": {"slept_ms": 500},
    "updated_at": "2030-01-31T12:00:02.000000Z",
    "started_at": "2030-01-31T12:00:01.250000Z",
    "finished_at": "2030-01-31T12:00:02.000000Z",
}

DEAD_JOB: dict[str, Any] = QUEUED_JOB | {
    "state": "dead",
    "version": 7,
    "attempts": 3,
    "last_error": {
        "kind": "unknown",
        "type": "ZeroDivisionError",
        "message": "division by zero",
        "fingerprint": "5b1f0c6c0a9d7e42",
        "attempt": 3,
        "at": "2030-01-31T12:03:00.000000Z",
    },
    "started_at": "2030-01-31T12:02:59.000000Z",
    "finished_at": "2030-01-31T12:03:00.000000Z",
}

RETRIED_JOB: dict[str, Any] = DEAD_JOB | {"state": "queued", "version": 8, "attempts": 0, "finished_at": None}

JOB_PAGE: dict[str, Any] = {
    "items": [{name: value for name, value in QUEUED_JOB.items() if name not in {"payload", "result"}}],
    "next_cursor": "AZjzoHwee16dUx8PP2wKEQ",
}
DEAD_PAGE: dict[str, Any] = {
    "items": [{name: value for name, value in DEAD_JOB.items() if name not in {"payload", "result"}}],
    "next_cursor": None,
}

BATCH: dict[str, Any] = {
    "two jobs": {
        "jobs": [
            {"kind": "demo.sleep", "payload": {"duration_ms": 500}},
            {"kind": "demo.sleep", "payload": {"duration_ms": 900}, "priority": 5},
        ]
    }
}
BATCH_LINES = '{"kind": "demo.sleep", "payload": {"duration_ms": 500}}\n{"kind": "demo.sleep"}\n'
BATCH_ANSWER: dict[str, Any] = {
    "items": [
        {"job": QUEUED_JOB, "replayed": False},
        {"job": QUEUED_JOB | {"id": OTHER_ID, "payload": {"duration_ms": 900}, "priority": 5}, "replayed": False},
    ]
}

EVENT_PAGE: dict[str, Any] = {
    "items": [
        {
            "version": 1,
            "at": "2030-01-31T12:00:00.000000Z",
            "type": "enqueued",
            "state": "queued",
            "attempt": 0,
            "worker_id": None,
            "detail": {},
        },
        {
            "version": 2,
            "at": "2030-01-31T12:00:01.250000Z",
            "type": "leased",
            "state": "running",
            "attempt": 1,
            "worker_id": "host-7:4711:5f2a",
            "detail": {},
        },
    ],
    "next_cursor": None,
}
EVENT_STREAM = (
    "id: 2\nevent: leased\n"
    'data: {"version":2,"at":"2030-01-31T12:00:01.250000Z","type":"leased","state":"running","attempt":1,'
    '"worker_id":"host-7:4711:5f2a","detail":{}}\n\n'
)

CANCEL: dict[str, Any] = {"with a reason": {"reason": "ordered twice", "version": 2}, "just cancel": {}}
RECEIPT_PREVENTED: dict[str, Any] = {
    "outcome": "prevented",
    "job_id": JOB_ID,
    "state": "canceled",
    "version": 2,
    "requested_at": "2030-01-31T12:00:05.000000Z",
    "requested_by": None,
    "reason": "ordered twice",
    "delivered_at": None,
    "confirmed_at": "2030-01-31T12:00:05.000000Z",
    "worker_id": None,
    "lease_expires_at": None,
}
RECEIPT_REQUESTED: dict[str, Any] = RECEIPT_PREVENTED | {
    "outcome": "requested",
    "state": "running",
    "version": 3,
    "confirmed_at": None,
    "worker_id": "host-7:4711:5f2a",
    "lease_expires_at": "2030-01-31T12:00:31.250000Z",
}

RETRY: dict[str, Any] = {
    "with a new deadline": {"expires_in_seconds": 3600, "reason": "the bug is fixed"},
    "just retry": {},
}

CLAIM: dict[str, Any] = {
    "one job": {"worker_id": "host-7:4711:5f2a", "queues": ["default"]},
    "long poll": {
        "worker_id": "host-7:4711:5f2a",
        "queues": ["default", "exports"],
        "kinds": ["demo.sleep", {"kind": "report.export", "schema_versions": [1, 2]}],
        "max_jobs": 10,
        "lease_seconds": 30,
        "wait_seconds": 20,
    },
}
CLAIMED: dict[str, Any] = {
    "leases": [
        {
            "job": RUNNING_JOB | {"progress": None},
            "lease_token": TOKEN,
            "lease_expires_at": "2030-01-31T12:00:31.250000Z",
            "heartbeat_every_seconds": 10.0,
        }
    ],
    "directive": None,
}

HEARTBEAT: dict[str, Any] = {
    "with progress": {"lease_token": TOKEN, "progress": {"fraction": 0.4, "message": "2 of 5 files"}}
}
HEARTBEAT_ANSWER: dict[str, Any] = {
    "lease_expires_at": "2030-01-31T12:00:41.250000Z",
    "cancel_requested": False,
    "deadline_at": None,
    "directive": None,
}
HEARTBEAT_MANY: dict[str, Any] = {
    "two leases": {"leases": [{"job_id": JOB_ID, "lease_token": TOKEN}, {"job_id": OTHER_ID, "lease_token": TOKEN}]}
}

_LOST: dict[str, Any] = {
    "type": "urn:tenure:problem:lease-lost",
    "title": "This lease is not the job's current one",
    "status": 409,
    "detail": "this token was never a lease of this job",
    "code": "lease-lost",
    "reason": "unknown",
    "current_attempt": 1,
    "result_discarded": False,
}
HEARTBEAT_MANY_ANSWER: dict[str, Any] = {
    "items": [
        {"job_id": JOB_ID, "status": 200, **HEARTBEAT_ANSWER},
        {"job_id": OTHER_ID, "status": 409, "problem": _LOST},
    ]
}

COMPLETE: dict[str, Any] = {"with a result": {"lease_token": TOKEN, "result": {"slept_ms": 500}}}
FAIL: dict[str, Any] = {
    "come back later": {
        "lease_token": TOKEN,
        "error": {"kind": "transient", "type": "TimeoutError", "message": "upstream timed out"},
        "retry_after_seconds": 30,
    }
}
RELEASE: dict[str, Any] = {"give it back": {"lease_token": TOKEN}}
SNOOZE: dict[str, Any] = {"in a minute": {"lease_token": TOKEN, "delay_seconds": 60}}
SETTLED_SUCCEEDED: dict[str, Any] = {
    "job_id": JOB_ID,
    "state": "succeeded",
    "version": 3,
    "available_at": "2030-01-31T12:00:00.000000Z",
}
SETTLED_QUEUED: dict[str, Any] = SETTLED_SUCCEEDED | {"state": "queued", "available_at": "2030-01-31T12:00:32.000000Z"}
SETTLE_MANY: dict[str, Any] = {
    "one of each": {
        "outcomes": [
            {"job_id": JOB_ID, "lease_token": TOKEN, "outcome": "complete", "result": {"slept_ms": 500}},
            {
                "job_id": OTHER_ID,
                "lease_token": TOKEN,
                "outcome": "fail",
                "error": {"kind": "transient", "message": "upstream timed out"},
            },
            {"job_id": OTHER_ID, "lease_token": TOKEN, "outcome": "release"},
            {"job_id": OTHER_ID, "lease_token": TOKEN, "outcome": "snooze", "delay_seconds": 60},
        ]
    }
}
SETTLE_MANY_ANSWER: dict[str, Any] = {
    "items": [
        {"status": 200, **SETTLED_SUCCEEDED},
        {"job_id": OTHER_ID, "status": 409, "problem": _LOST},
    ]
}

ARTIFACTS: dict[str, Any] = {
    "items": [
        {
            "name": "orders.csv",
            "bytes": 23,
            "rows": 1,
            "sha256": SHA256,
            "content_type": "text/csv; charset=utf-8",
            "created_at": "2030-01-31T12:00:02.000000Z",
        }
    ],
    "next_cursor": None,
}

HEALTH: dict[str, Any] = {"status": "ok"}
READY: dict[str, Any] = {"status": "ready", "reasons": []}
NOT_READY: dict[str, Any] = {"status": "not_ready", "reasons": ["the service is stopping"]}
OPENAPI: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "Tenure", "version": "0.1.0"}, "paths": {}}

WORKER: dict[str, Any] = {
    "id": "host-7:4711:5f2a",
    "queues": ["default", "exports"],
    "kinds": ["demo.sleep", "report.export"],
    "capacity": 10,
    "version": "0.1.0",
    "host": "host-7",
    "directive": None,
    "directed_at": None,
    "directed_by": None,
    "directive_reason": None,
    "first_seen_at": "2030-01-31T11:00:00.000000Z",
    "last_seen_at": "2030-01-31T12:00:01.250000Z",
    "running": 1,
}
DIRECT: dict[str, Any] = {"with a reason": {"reason": "moving to another host"}, "just do it": {}}
WORKER_PAGE: dict[str, Any] = {"items": [WORKER], "next_cursor": None}
WORKER_DETAIL: dict[str, Any] = WORKER | {
    "holds": [
        {
            "job_id": JOB_ID,
            "kind": "demo.sleep",
            "queue": "default",
            "attempts": 1,
            "acquired_at": "2030-01-31T12:00:01.250000Z",
            "expires_at": "2030-01-31T12:00:31.250000Z",
            "heartbeat_at": "2030-01-31T12:00:01.250000Z",
        }
    ]
}
