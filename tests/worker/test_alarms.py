"""Calls at given times."""

import asyncio

from tenure.worker.alarms import Alarms


async def test_calls_come_in_the_order_of_their_times() -> None:
    alarms, called, done = Alarms(), list[str](), asyncio.Event()
    alarms.set(0.03, done.set)
    alarms.set(0.02, lambda: called.append("second"))
    alarms.set(0.01, lambda: called.append("first"))
    await asyncio.wait_for(done.wait(), 10)
    assert called == ["first", "second"]
    assert len(alarms) == 0


async def test_what_is_called_off_does_not_come() -> None:
    alarms, called, done = Alarms(), list[str](), asyncio.Event()
    alarm = alarms.set(0.0, lambda: called.append("called off"))
    alarm.call_off()
    alarm.call_off()
    alarms.set(0.01, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert not called
    assert alarm.off


async def test_a_call_that_raises_does_not_take_the_later_ones_along() -> None:
    told, done = list[str](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(str(context["exception"])))
    alarms = Alarms()

    def fail() -> None:
        raise ValueError("on purpose")

    alarms.set(0.0, fail)
    alarms.set(0.0, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert told == ["on purpose"]


async def test_memory_does_not_grow_with_what_was_called_off() -> None:
    alarms = Alarms()
    alarms.set(60.0, lambda: None)
    for _ in range(20_000):
        alarms.set(60.0, lambda: None).call_off()
    assert len(alarms) < 5_000


async def test_an_alarm_set_by_an_alarm_comes_too() -> None:
    alarms, done = Alarms(), asyncio.Event()

    def again() -> None:
        alarms.set(0.0, done.set)

    alarms.set(0.0, again)
    await asyncio.wait_for(done.wait(), 10)
