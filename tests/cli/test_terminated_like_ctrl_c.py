"""SIGTERM ends a foreground command as Ctrl-C does, so that nothing it started is left behind."""

import os
import signal

import pytest

from seedlab.cli.signals import terminated_like_ctrl_c


def test_sigterm_is_ctrl_c_within_and_itself_again_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_ctrl_c():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) is before
