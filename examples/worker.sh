#!/usr/bin/env bash
# A worker for Tenure: runs COMMAND once a job, the payload on its stdin, the result (JSON, or text) from its stdout.
#
#   TENURE_URL=http://127.0.0.1:8080 TENURE_QUEUE=mail TENURE_KIND=mail.send examples/worker.sh ./send-mail
#
# Exit code 0: done. 75: try again later. 65: will never work. Others: an unknown error, retried. stderr is the message.
# JOB_ID in COMMAND's environment is the key for what must not happen twice. A cancel, a timeout or a lost lease ends COMMAND
# and what it started; SIGTERM does, too, gives the job back, and ends the worker. One job at a time: start as many as you like.
# Needs bash 5, curl 7.71, jq and the coreutils. What it follows is docs/protocol.md.
set -u
url=${TENURE_URL:-http://127.0.0.1:8080} dir=$(mktemp -d) stopping=''
patiently=(--max-time 15 --retry 60 --retry-delay 1 --retry-all-errors)
trap '[[ $BASHPID != $$ ]] || rm -rf "$dir"' EXIT # not in a child that was killed before it became another program
trap 'stopping=1' TERM INT

ask() { # ask PATH BODY [CURL OPTIONS]: the answer is then in $dir/answer, its status in $status (000: there was none)
  curl -sS -o "$dir/answer" -w '%{http_code}' -H 'content-type: application/json' -d @- "${@:3}" "$url$1" <<<"$2" >"$dir/status" &
  while kill -0 $! 2>/dev/null; do # a signal ends `wait`, and only a claim may be broken off
    [[ $stopping && $1 == /leases ]] && kill $!
    wait $!
  done
  status=$(<"$dir/status")
  [[ $status == 200 ]] && jq -e '.directive == "terminate"' "$dir/answer" >/dev/null && stopping=1 # an operator's wish
}
say() { TOKEN=$token jq -c "$@"; } # a token goes by the environment: arguments are for all to see
fail() { # fail KIND: the message is in $dir/errors
  ask "/jobs/$id/fail" "$(say -Rs --arg kind "$1" --arg code "$code" '{lease_token: env.TOKEN, error: {kind: $kind,
    message: (.[-2000:] | if . == "" then "exit code " + $code else . end)}}' "$dir/errors")" "${patiently[@]}"
}

while [[ ! $stopping ]]; do
  ask /leases "$(jq -nc --arg me "$(hostname)-$$" --arg queue "${TENURE_QUEUE:-default}" --arg kind "${TENURE_KIND:-}" \
    '{worker_id: $me, queues: [$queue], wait_seconds: 20} + if $kind == "" then {} else {kinds: [$kind]} end')" --max-time 40
  [[ $status == 200 || $stopping ]] || sleep "1.$RANDOM" # nobody there, or stopping: about once a second, not all at once
  [[ $status == 200 ]] && lease=$(jq -ce '.leases[0] // empty' "$dir/answer") || continue

  read -r id token every limit < <(jq -r '[.job.id, .lease_token, .heartbeat_every_seconds, .job.timeout_seconds // 0] | join(" ")' <<<"$lease")
  jq -c .job.payload <<<"$lease" >"$dir/payload"
  job='' why=${stopping:+stopping}
  [[ $why ]] || { JOB_ID=$id timeout --kill-after=5 "$limit" "$@" <"$dir/payload" >"$dir/result" 2>"$dir/errors" & job=$!; }
  while [[ ! $why ]]; do
    sleep "$every" & nap=$!
    wait -n "$job" "$nap"
    kill "$nap" 2>/dev/null
    kill -0 "$job" 2>/dev/null || break
    [[ $stopping ]] && why=stopping && break
    ask "/jobs/$id/heartbeat" "$(say -n '{lease_token: env.TOKEN}')" --max-time "$every" # one that fails: the next one counts
    [[ $status == 200 ]] && jq -e .cancel_requested "$dir/answer" >/dev/null && why=canceled
    [[ $status == 409 || $status == 404 ]] && why=lost
  done
  [[ $why && $job ]] && kill "$job" 2>/dev/null
  wait $job; code=$?

  case ${why:-$code} in
    lost) echo "$id: the lease is lost: $(jq -r .detail "$dir/answer")" >&2; continue ;;
    stopping) ask "/jobs/$id/release" "$(say -n '{lease_token: env.TOKEN}')" "${patiently[@]}" ;;
    0) ask "/jobs/$id/complete" "$(say -s '{lease_token: env.TOKEN, result: (if length < 2 then .[0] else . end)}' "$dir/result" 2>/dev/null ||
      say -Rs '{lease_token: env.TOKEN, result: .}' "$dir/result")" "${patiently[@]}"
      [[ $status == 413 || $status == 422 ]] && jq -r .detail "$dir/answer" >"$dir/errors" && fail permanent ;; # the lease stays
    canceled) fail canceled ;;
    124) fail timeout ;; 75) fail transient ;; 65) fail permanent ;; *) fail unknown ;;
  esac
  [[ $status == 200 ]] || echo "$id: not accepted ($status): $(jq -r .detail "$dir/answer" 2>/dev/null)" >&2
done
