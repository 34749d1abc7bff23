import os
import signal
import threading

import pytest

from seedlab.jobs.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_interrupts(number):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested and stop.signal == number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(number) is before


def test_a_thread_leaves_signals_alone():
    found = []

    def work():
        with stop_on_signals() as stop:
            found.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
