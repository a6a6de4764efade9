"""What a link does to the bytes on it, one small file an effect; importing this package registers them all."""

from netem.effects.base import EFFECTS, Effect, Ending, Parcel, Stage, parse_effect, register
from netem.effects.cut import Cut
from netem.effects.delay import Delay
from netem.effects.rate import Rate
from netem.effects.stall import Stall

__all__ = [
    "EFFECTS",
    "Cut",
    "Delay",
    "Effect",
    "Ending",
    "Parcel",
    "Rate",
    "Stage",
    "Stall",
    "parse_effect",
    "register",
]
