#!/usr/bin/env node
// A worker for Tenure in Node 18 or newer, without packages: several jobs at once, their leases kept by one request.
//
//   TENURE_URL=http://127.0.0.1:8080 TENURE_QUEUE=mail node examples/worker.mjs --concurrency 10 ./handlers.mjs
//
// handlers.mjs exports its handlers by kind:
//
//   export default {
//     "mail.send": async (payload, { job, signal, progress }) => { progress(0.5, "half"); return { sent: true }; },
//   };
//
// `signal` aborts on a cancel, a timeout, a lost lease and a shutdown: pass it on (fetch, timers, child processes). What a
// handler returns is the result; the `kind` of an error it throws ("transient", "permanent", "poison") decides what follows,
// without one it is unknown, and retried. SIGTERM gives all jobs back and ends. What it follows is docs/protocol.md.
import { hostname } from "node:os";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values: options, positionals } = parseArgs({
  options: { concurrency: { type: "string", default: "10" } },
  allowPositionals: true,
});
if (positionals.length !== 1 || !(Number(options.concurrency) >= 1)) {
  console.error("usage: worker.mjs [--concurrency N] HANDLERS.mjs");
  process.exit(2);
}
const { default: handlers } = await import(pathToFileURL(positionals[0]).href);
const url = process.env.TENURE_URL ?? "http://127.0.0.1:8080";
const queue = process.env.TENURE_QUEUE ?? "default";
const slots = Number(options.concurrency);
const workerId = `${hostname()}-${process.pid}`;
const WAIT_SECONDS = 20;
const GRACE_SECONDS = 5;
const TICK_MILLISECONDS = 100;
const STOP = { canceled: "canceled", timeout: "timeout", lost: "lost", stopping: "stopping" };

/** Leases that are held, by token: { job, token, every, beatAt, controller, progress }. */
const held = new Map();
const stopping = new AbortController();
const pause = () => sleep(500 + Math.random() * 1000);

/** One request. Returns { status, answer }; status 0 when nobody answered, or not in time. */
async function ask(path, body, timeoutSeconds, signal) {
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), timeoutSeconds * 1000);
  const leave = () => giveUp.abort();
  if (signal?.aborted) leave();
  signal?.addEventListener("abort", leave);
  try {
    const response = await fetch(url + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: giveUp.signal,
    });
    return { status: response.status, answer: await response.json() };
  } catch {
    return { status: 0, answer: {} };
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", leave);
  }
}

/** Claims while there are free slots. Ends when the worker is told to. */
async function claim() {
  while (!stopping.signal.aborted) {
    if (held.size >= slots) {
      await new Promise((resolve) => (freed = resolve));
      continue;
    }
    const wish = { worker_id: workerId, host: hostname(), capacity: slots, queues: [queue], kinds: Object.keys(handlers) };
    const { status, answer } = await ask(
      "/leases",
      { ...wish, max_jobs: Math.min(slots - held.size, 1000), wait_seconds: WAIT_SECONDS },
      WAIT_SECONDS + 20, // longer than the server waits
      stopping.signal,
    );
    for (const lease of answer.leases ?? []) void run(lease);
    obey(answer);
    if (status !== 200 && !stopping.signal.aborted) await pause(); // nobody there, or stopping: once a second, not all at once
  }
}
let freed = () => {};

/** Runs one job and reports what became of it. */
async function run({ job, lease_token: token, heartbeat_every_seconds: every }) {
  const lease = { job, token, every, beatAt: performance.now() + every * 1000, controller: new AbortController(), progress: null };
  held.set(token, lease);
  const { signal } = lease.controller;
  const limit = job.timeout_seconds;
  // What is longer than a timer can count has no need of one.
  const timer = limit && limit < 2_000_000 && setTimeout(() => lease.controller.abort(STOP.timeout), limit * 1000);
  const progress = (fraction, message = null) => (lease.progress = { fraction, message });
  let report;
  try {
    const result = (await handlers[job.kind](job.payload, { job, signal, progress })) ?? null;
    report = { verb: "complete", body: { result } };
  } catch (error) {
    const kind = { canceled: "canceled", timeout: "timeout" }[signal.reason] ?? error?.kind ?? "unknown";
    report = { verb: "fail", body: { error: { kind, type: error?.name, message: String(error?.message ?? error) } } };
    if (signal.reason === STOP.stopping) report = { verb: "release", body: {} };
  }
  clearTimeout(timer);
  if (signal.reason !== STOP.lost) await settle(lease, report);
  held.delete(token);
  freed();
}

/** Reports until somebody has answered: a repeat of the same outcome under the same token changes nothing. */
async function settle({ job, token, controller }, { verb, body }) {
  while (controller.signal.reason !== STOP.lost) {
    const { status, answer } = await ask(`/jobs/${job.id}/${verb}`, { lease_token: token, ...body }, 15);
    if (status === 0 || status === 408 || status === 429 || status >= 500) await pause();
    else if (status === 200) return;
    else if (verb === "complete" && (status === 413 || status === 422)) {
      // The service will not take this result, and the lease stays.
      [verb, body] = ["fail", { error: { kind: "permanent", message: answer.detail } }];
    } else return console.error(`${job.id}: not accepted (${status}): ${answer.detail}`);
  }
}

/** Keeps leases, each as often as it asks for, all that are due with one request. */
async function heartbeat() {
  for (;;) {
    await sleep(TICK_MILLISECONDS);
    const now = performance.now();
    const due = [...held.values()].filter((lease) => lease.beatAt <= now);
    if (!due.length) continue;
    for (const lease of due) lease.beatAt = now + lease.every * 1000;
    const beats = due.map(({ job, token, progress }) => ({ job_id: job.id, lease_token: token, ...(progress && { progress }) }));
    const { status, answer } = await ask("/leases/heartbeat", { leases: beats }, Math.min(...due.map(({ every }) => every)));
    if (status !== 200) continue; // the next one counts: only an answer says that a lease is lost
    answer.items.forEach((item, position) => {
      const { controller } = due[position];
      if (item.status === 409 || item.status === 404) {
        if (!held.has(due[position].token)) return; // settled meanwhile
        console.error(`${item.job_id}: the lease is lost: ${item.problem.detail}`);
        controller.abort(STOP.lost);
      } else if (item.cancel_requested) controller.abort(STOP.canceled);
      obey(item);
    });
  }
}

/** An operator may tell the worker to end. */
function obey({ directive }) {
  if (directive === "terminate") stopping.abort();
}

for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stopping.abort());
stopping.signal.addEventListener("abort", () => {
  freed();
  for (const { controller } of held.values()) controller.abort(STOP.stopping);
});

void heartbeat();
await claim();
for (const { controller } of held.values()) controller.abort(STOP.stopping);
// A handler that does not stop is not reported for: its lease ends by itself, and then the job is tried again.
const end = Date.now() + GRACE_SECONDS * 1000;
while (held.size && Date.now() < end) await sleep(20);
process.exit(0);
