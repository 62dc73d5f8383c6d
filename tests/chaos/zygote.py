"""A process that has Tenure imported and forks it on demand: each start costs milliseconds instead of seconds of import.

What is forked is a process of its own, and runs what the ``tenure`` command runs. The zygote has one thread, opens no
event loop and no connection, and lives as long as its standard input is open; then it kills what it started. Only its own
children are ever signalled: a process id is not reused before its parent has waited for it, and the parent is this one.

Orders are JSON lines on standard input: ``{"start": number, "argv", "env", "log"}``, ``{"signal": pid, "number"}``.
Reports are JSON lines on standard output: ``{"started": number, "pid"}``, ``{"exited": pid, "code"}``.
"""

import gc
import os
import selectors
import signal
import sys
import traceback
from typing import Any

import orjson

from tenure.cli.app import run
from tests.chaos.builds import apply_build

_CHUNK_BYTES = 65_536


def main() -> None:
    """Serves orders until standard input closes."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    children: set[int] = set()
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    pending = b""
    try:
        while True:
            for key, _ in selector.select():
                received = os.read(int(key.fd), _CHUNK_BYTES)
                if key.fd == wake_read:
                    continue
                if not received:
                    return
                pending += received
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    _obey(orjson.loads(line), children, (wake_read, wake_write))
            _reap(children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


def _obey(order: dict[str, Any], children: set[int], own: tuple[int, int]) -> None:
    if "signal" in order:
        if order["signal"] in children:
            os.kill(order["signal"], order["number"])
        return
    pid = os.fork()
    if pid == 0:
        os._exit(_be(order, own))
    children.add(pid)
    _report({"started": order["start"], "pid": pid})


def _be(order: dict[str, Any], own: tuple[int, int]) -> int:
    """The child: the command, with its own log in the place of the zygote's streams."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in own:
            os.close(descriptor)
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        os.environ.clear()
        os.environ.update(order["env"])
        apply_build(os.environ)
        code = run(order["argv"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _reap(children: set[int]) -> None:
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            _report({"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def _report(report: dict[str, Any]) -> None:
    os.write(1, orjson.dumps(report) + b"\n")


if __name__ == "__main__":
    main()
