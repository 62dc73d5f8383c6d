#!/usr/bin/env bash
# What `tenure verify-worker` has jobs do, for examples/worker.sh (docs/protocol.md, "The conformance kit"):
#
#   tenure verify-worker -- examples/worker.sh examples/verify-job.sh
set -eu
payload=$(cat)
of() { jq -cr "$1" <<<"$payload"; }
case $(of .do) in
  sleep) sleep "$(of .seconds)" ;;
  fail) of .message >&2; [[ $(of .kind) == permanent ]] && exit 65 || exit 75 ;;
esac
jq -c .result <<<"$payload"
