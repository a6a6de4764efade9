"""Effects of a link on the bytes on it, one small file each; importing this package registers them all."""

from netem.effects.base import EFFECTS, Effect, Ending, Parcel, Stage, parse_effect, register
from netem.effects.blackhole import Blackhole
from netem.effects.corrupt import Corrupt
from netem.effects.cut import Cut
from netem.effects.delay import Delay
from netem.effects.duplicate import Duplicate
from netem.effects.jitter import Jitter
from netem.effects.loss import Loss
from netem.effects.rate import Rate
from netem.effects.stall import Stall

__all__ = [
    "EFFECTS",
    "Blackhole",
    "Corrupt",
    "Cut",
    "Delay",
    "Duplicate",
    "Effect",
    "Ending",
    "Jitter",
    "Loss",
    "Parcel",
    "Rate",
    "Stage",
    "Stall",
    "parse_effect",
    "register",
]
