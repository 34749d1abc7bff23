"""The mean gate over several skills is the mean of the objectives with one skill each."""

from dataclasses import replace

import pytest
import torch
from test_compose import batch, gradient, run

from seedlab.config.schema import ObjectiveConfig

CFG = ObjectiveConfig(opd_coef=0.3, kl_coef=0.0)


def several(b, skills=4, seed=9):
    noise = torch.randn(*b.logp.shape, skills - 1, generator=torch.Generator().manual_seed(seed), dtype=b.logp.dtype)
    return replace(b, more_teachers=b.logp[..., None] + 0.5 * noise)


def test_value_and_gradient_are_the_mean_over_the_skills():
    b = several(batch())
    each = [replace(b, more_teachers=None)] + [replace(b, more_teachers=None, logp_teacher=b.more_teachers[..., s]) for s in range(3)]
    torch.testing.assert_close(gradient(b, CFG)[0], torch.stack([gradient(x, CFG)[0] for x in each]).mean(0), atol=1e-15, rtol=0)
    outs = [run(x, CFG)[1] for x in each]
    out = run(b, CFG)[1]
    assert out.terms["opd"].item() == pytest.approx(sum(o.terms["opd"].item() for o in outs) / 4, abs=1e-15)
    for name in ("gate", "delta"):
        torch.testing.assert_close(getattr(out, name), torch.stack([getattr(o, name) for o in outs]).mean(0), atol=1e-15, rtol=0)
    assert (out.sums["skills_read"][0] / out.sums["skills_read"][1]).item() == 4


def test_missing_skills_are_left_out_of_the_mean():
    b = several(batch())
    more = b.more_teachers.clone()
    more[..., 1] = torch.nan
    kept = replace(b, more_teachers=b.more_teachers[..., [0, 2]])
    torch.testing.assert_close(gradient(replace(b, more_teachers=more), CFG)[0], gradient(kept, CFG)[0], atol=1e-15, rtol=0)
    more[:] = torch.nan
    torch.testing.assert_close(gradient(replace(b, more_teachers=more), CFG)[0], gradient(batch(), CFG)[0], atol=1e-15, rtol=0)


def test_equal_skills_change_nothing_and_order_does_not_matter():
    b = batch()
    same = replace(b, more_teachers=b.logp_teacher[..., None].expand(-1, -1, 2))
    torch.testing.assert_close(gradient(same, CFG)[0], gradient(b, CFG)[0], atol=1e-15, rtol=0)
    s = several(b)
    turned = replace(s, logp_teacher=s.more_teachers[..., 0], more_teachers=torch.stack([s.logp_teacher, *s.more_teachers[..., 1:].unbind(-1)], -1))
    torch.testing.assert_close(gradient(turned, CFG)[0], gradient(s, CFG)[0], atol=1e-15, rtol=0)


def test_other_shapes_are_named():
    with pytest.raises(ValueError, match="more_teachers is"):
        replace(batch(), more_teachers=torch.zeros(6, 1, 2))
