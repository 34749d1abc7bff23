import os
import signal

import pandas as pd
import pytest
from compare_runs import weights_hash, without_clocks


@pytest.fixture(scope="session")
def stopped_and_resumed():
    """stopped_and_resumed(cfg, folder): the run of a process that was told to stop in its first update, gone on with."""
    from seedlab.train.run import resume, train
    from seedlab.train.stage2 import Interrupted

    def run(cfg, folder):
        def stop(phase, done, total, note=""):
            if (phase, done) == ("stage 2: rollout", 1) and not (folder / "checkpoints" / "000001").exists():
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(Interrupted, match="stopped after update 1 of"):
            train(cfg, folder, progress=stop)
        return resume(folder)

    return run


@pytest.fixture(scope="session")
def same_run():
    """same_run(a, b): weights, optimizer, metrics, records, tokens and evaluation are equal to the last bit."""
    import torch

    from seedlab.store.checkpoint import latest_checkpoint

    def optimizer(run):
        return torch.load(latest_checkpoint(run.path)[1] / "trainer.pt", weights_only=True)["optimizer"]["state"]

    def check(a, b):
        assert (a.status["state"], b.status["state"]) == ("succeeded", "succeeded")
        assert weights_hash(a) == weights_hash(b)
        states = optimizer(a), optimizer(b)
        assert states[0].keys() == states[1].keys() and states[0]
        for one, other in zip(states[0].values(), states[1].values()):
            assert all(torch.equal(one[k], other[k]) for k in ("step", "exp_avg", "exp_avg_sq"))
        pd.testing.assert_frame_equal(without_clocks(a.metrics), without_clocks(b.metrics), check_exact=True)
        assert a.updates == b.updates == list(range(a.config.stage2.updates))
        for update in a.updates:
            for table in ("trajectories", "steps", "skills"):
                pd.testing.assert_frame_equal(getattr(a, table)(update), getattr(b, table)(update), check_exact=True)
            pd.testing.assert_frame_equal(a.tokens(update=update), b.tokens(update=update), check_exact=True)
        last = a.config.stage2.updates
        pd.testing.assert_frame_equal(a.episodes(last), b.episodes(last), check_exact=True)
        assert a.evaluations.to_dict("records") == b.evaluations.to_dict("records")
        assert (a.problems(), b.problems()) == ([], [])

    return check
