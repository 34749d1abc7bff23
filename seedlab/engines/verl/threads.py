"""A coroutine in a thread of its own, with a limit on time that nothing in it can outlast."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Coroutine


async def in_thread(work: Coroutine, limit_s: float):
    """The result of `work`, run in a thread of its own; TimeoutError after `limit_s`, whatever the thread then does.

    An environment's step is an ordinary call: one that hangs would otherwise hold up every episode of the process.
    """
    done: Future = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()  # from now on it cannot be cancelled, so that a late result has somewhere to go
        try:
            result = asyncio.run(work)
        except BaseException as error:  # handed to the waiting coroutine, which raises it
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wait_for(asyncio.wrap_future(done), limit_s)
