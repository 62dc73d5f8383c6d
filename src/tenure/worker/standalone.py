"""A worker that is all that its process does."""

import asyncio
import logging
import signal

from tenure.worker.runtime import Worker

logger = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT)


async def run_until_signalled(worker: Worker) -> None:
    """Works until SIGTERM or SIGINT (or an operator's order), then ends in order; a second signal ends it at once.

    Must run in the main thread, as every handler of signals.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if worker.draining:
            logger.warning("second signal: ending at once")
            worker.stop_now()
        else:
            logger.info("stopping on %s; a second one ends it at once", number.name)
            worker.drain()

    for number in _ENDING:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await worker.run()
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)
