"""Propositions 1-3 and Eq. 8 of the paper, verified on the functions of `seedlab.objective` that training uses.

closed_form: the paper's right-hand sides.  expectation: the trainer's own gradients, in exact expectation.  bulk:
random instances.  transformer: a real model, enumerated.  studies and figures: what the claims look like.
Importing this package does not import torch.
"""

from __future__ import annotations


def run_all(seed: int = 0, instances: int = 10_000, vocabulary: int = 50, quick: bool = False, beta: float | None = None):
    """All claims, as a list of `seedlab.theory.claims.ClaimResult`; see `seedlab.theory.run.run_all`."""
    from seedlab.theory import run

    return run.run_all(seed, instances, vocabulary, quick, beta)


def main(argv=None) -> int:
    """The command line `seedlab theory`; see `seedlab.theory.run.main`."""
    from seedlab.theory import run

    return run.main(argv)
