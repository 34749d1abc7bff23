"""The mathematics of every method, as pure functions on tensors.  Knows nothing of environments, models or files.

advantages: group-relative advantages and ties.  ties: the chance of a tie.  losses: per-token terms.  aggregate: token and sequence means over
whole minibatches.  compose: the single `objective` that training, theory and every engine call.  metrics: sums and
counts.
"""
