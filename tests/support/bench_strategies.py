"""Configurations by chance."""

from __future__ import annotations

from hypothesis import strategies as st

from memtui.bench.configuration import Configuration, make

CHANNELS = st.sampled_from((8, 16, 48, 64))


@st.composite
def convolutions(draw) -> Configuration:
    """Convolutions of all kinds, under all conditions."""
    given = {
        "n": draw(st.integers(1, 64)), "cin": draw(CHANNELS), "cout": draw(CHANNELS), "h": draw(st.integers(7, 64)),
        "k": draw(st.sampled_from((1, 3, 5, 7))), "s": draw(st.integers(1, 2)),
        "groups": draw(st.sampled_from((1, 2, 8))),
        "dtype": draw(st.sampled_from(("fp32", "bf16"))), "cache": draw(st.sampled_from(("cold", "warm"))),
        "mode": draw(st.sampled_from(("forward", "forward-backward"))),
    }  # fmt: skip
    return make("conv2d", given)
