"""A worker that does not keep to the protocol, in the one way that its argument names. Needs nothing but Python.

python faulty_worker.py FAULT
"""

import http.client
import json
import os
import signal
import sys
import time
from typing import Any
from urllib.parse import urlsplit

FAULT = sys.argv[1]
URL, QUEUE, KIND = (os.environ[name] for name in ("TENURE_URL", "TENURE_QUEUE", "TENURE_KIND"))
STEP_SECONDS = 0.02
stopping = False


def ask(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    line = http.client.HTTPConnection(urlsplit(URL).netloc, timeout=40)
    try:
        line.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = line.getresponse()
        return answer.status, json.load(answer)
    except (OSError, ValueError, http.client.HTTPException):
        if FAULT == "crashes-on-cut":
            raise
        return 0, {}
    finally:
        line.close()


def settle(job_id: str, verb: str, body: dict[str, Any]) -> None:
    status, _ = ask(f"/jobs/{job_id}/{verb}", body)
    while status in {0, 503} and FAULT != "reports-once":
        time.sleep(0.5)
        if FAULT == "changes-its-mind":
            verb = "fail"
            body = {"lease_token": body["lease_token"], "error": {"kind": "unknown", "message": "lost answer"}}
        status, _ = ask(f"/jobs/{job_id}/{verb}", body)


def work(lease: dict[str, Any]) -> None:
    job, token, every = lease["job"], {"lease_token": lease["lease_token"]}, lease["heartbeat_every_seconds"]
    job_id, payload = job["id"], job["payload"]
    if payload["do"] == "fail":
        kind = "unknown" if FAULT == "forgets-kinds" else payload["kind"]
        settle(job_id, "fail", {**token, "error": {"kind": kind, "message": payload["message"]}})
        return
    end, beat_at = time.monotonic() + payload.get("seconds", 0), time.monotonic() + every
    lost = False
    while time.monotonic() < end:
        time.sleep(STEP_SECONDS)
        if stopping and FAULT == "keeps-its-lease":
            sys.exit(0)
        if stopping and FAULT != "ignores-sigterm":
            settle(job_id, "release", token)
            return
        if time.monotonic() < beat_at or FAULT == "no-heartbeat" or (lost and FAULT == "reports-stale"):
            continue
        beat_at += every
        status, answer = ask(f"/jobs/{job_id}/heartbeat", token)
        if status == 409:
            if FAULT not in {"ignores-lost", "reports-stale"}:
                return
            lost = True
        elif answer.get("cancel_requested") and FAULT == "succeeds-on-cancel":
            break
        elif answer.get("cancel_requested") and FAULT != "ignores-cancel":
            settle(job_id, "fail", {**token, "error": {"kind": "canceled", "message": "as asked"}})
            return
    settle(job_id, "complete", {**token, "result": None if FAULT == "forgets-results" else payload["result"]})


def stop(*_: object) -> None:
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
claim: dict[str, Any] = {"worker_id": f"faulty-{os.getpid()}", "queues": [QUEUE], "kinds": [KIND], "wait_seconds": 0.5}
if FAULT == "chooses-its-lease":
    claim["lease_seconds"] = 600
while not stopping or FAULT == "ignores-sigterm":
    code, found = ask("/leases", claim)
    if code != 200 and FAULT != "floods":
        time.sleep(0.5)
    for held in found.get("leases", ()):
        work(held)
