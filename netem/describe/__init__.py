"""Descriptions of messages, one small file a protocol; importing this package registers them all."""

from netem.describe.base import Describer, describe, register
from netem.describe.http import describe_http
from netem.describe.pkt_line import describe_pkt_line

__all__ = ["Describer", "describe", "describe_http", "describe_pkt_line", "register"]
