// What `tenure verify-worker` has jobs do, for examples/worker.mjs (docs/protocol.md, "The conformance kit"):
//
//   tenure verify-worker -- node examples/worker.mjs examples/verify-job.mjs
import { setTimeout as sleep } from "node:timers/promises";

export default {
  [process.env.TENURE_KIND ?? "verify.worker"]: async (payload, { signal }) => {
    if (payload.do === "sleep") await sleep(payload.seconds * 1000, undefined, { signal });
    if (payload.do === "fail") throw Object.assign(new Error(payload.message), { kind: payload.kind });
    return payload.result;
  },
};
