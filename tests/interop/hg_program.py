"""The work of the `hg` program that pip makes, in a process that has already imported its modules (`hg_forks`)."""

from __future__ import annotations

import os
import sys

import hgdemandimport
from mercurial import dispatch, pycompat
from mercurial.utils import procutil

# What these modules read as they were imported.
pycompat.sysargv = [os.fsencode(each) for each in sys.argv]
for name, number in (("stdout", 1), ("stderr", 2)):
    stream = os.fdopen(number, "w", closefd=False)
    for module, attribute, value in (
        (sys, name, stream),
        (sys, f"__{name}__", stream),
        (procutil, name, stream.buffer),
    ):
        setattr(module, attribute, value)
hgdemandimport.enable()
dispatch.run()
