import os
import signal
import threading

import pytest

from seedlab.jobs import signals
from seedlab.jobs.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_interrupts(number, monkeypatch):
    monkeypatch.setattr(signals, "ECHO_S", 0.0)
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested and stop.signal == number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(number) is before


def test_a_sigterm_that_arrives_twice_at_once_is_one_request():
    """As from a scheduler that signals the whole job, whose launcher passes the signal on."""
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


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
