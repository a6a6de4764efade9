"""Compiles the thin start in C (`thin.c`) for this installation.

The compiled program replaces the Python programs that pip created, and no other file. Pip removes them by name, so an
upgrade or another installation leaves none behind. The program contains the facts for which it was compiled. If these
have changed, it runs the Python program.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution

import smartserver
from smartserver.agent.reading import NAME, READING
from smartserver.programs import exit_reason

OURS = NAME.decode()

PROGRAMS = ("git-remote-hpss", "git-remote-hpss+ssh", "git-remote-hpss+tls", OURS)
"""Programs whose commands an agent may run, see `cli.git_remote` and `agent.reading`."""

KNOWN = ("__init__.py", "agent/thin.c", "agent/thin.py", "agent/address.py", "agent/peer.py", "cli/git_remote.py",
         "agent/reading.py", "cli/streams.py", "cli/zygote.py")  # fmt: skip
"""The files that the C program must agree with. The program compares their modification times with those at its
compilation."""

_CODE = "import sys; del sys.argv[0]; from smartserver.cli.{} import main; main()  # {}"
"""The Python code that the C program starts if no agent runs the command. Its first argument is the path of the C
program. Lists of processes show the name in the comment."""
CODE, CODE_OF_OURS = _CODE.format("git_remote", PROGRAMS[0]), _CODE.format("entry", OURS)

OPTIONS = ("-std=gnu11", "-O2")

SECONDS = 60
"""The most seconds that the compiler, the compiled program or the interpreter may take."""


class NotCompiled(Exception):
    """The program could not be compiled; the text gives the reason."""


def compile_to(paths: Sequence[str], environment: Mapping[str, str], options: Sequence[str] = OPTIONS) -> None:
    """Compile the program to each path, with the compiler that CC names, else `cc`. An existing file is replaced
    atomically.

    Raises:
        NotCompiled: this system is not Linux, there is no compiler, the compiler fails, the compiled program does not
            run, or a path cannot be written.
    """
    if sys.platform != "linux":  # There `cc` may open a window that offers to install one.
        raise NotCompiled("the program in C needs Linux")
    made = {path: f"{path}.{os.getpid()}.new" for path in paths}
    ours = [made[path] for path in paths if os.path.basename(path) == OURS]
    others = [each for each in made.values() if each not in ours]
    known = _definitions(environment)
    try:
        _make(others, [*known, _defined("CODE", CODE), *options], environment)
        of_ours = (_defined("NAME", OURS), _defined("READING", *READING), _defined("CODE", CODE_OF_OURS))
        _make(ours, [*known, *of_ours, *options], environment)
        for path, new in made.items():
            if os.path.exists(path):
                shutil.copymode(path, new)
            os.replace(new, path)
    except OSError as error:
        raise NotCompiled(f"{error.filename}: {error.strerror}") from None
    finally:
        for new in made.values():
            if os.path.lexists(new):
                os.unlink(new)


def _make(paths: Sequence[str], options: Sequence[str], environment: Mapping[str, str]) -> None:
    """Compile the program once, test that it runs, and copy it to each path."""
    for path in paths[:1]:
        compiler = shlex.split(environment.get("CC") or "cc")
        _run([*compiler, *options, "-o", path, os.path.join(_folder(), "agent", "thin.c")], environment)
        _run([path, "--help"], environment)
    for path in paths[1:]:
        shutil.copy(paths[0], path)


def installed() -> list[str]:
    """Return the paths of the `PROGRAMS` that pip created, and will remove."""
    try:
        files = distribution("smartserver").files or []
    except PackageNotFoundError:
        return []
    paths = [os.path.normpath(str(file.locate())) for file in files if file.name in PROGRAMS]
    return sorted({path for path in paths if os.path.isfile(path)})


def _run(words: list[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NotCompiled(f"{words[0]} takes more than {SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [exit_reason(done.returncode)]
        raise NotCompiled(f"{words[0]}: {said[0]}")
    return os.fsdecode(done.stdout)


def _folder() -> str:
    return os.path.dirname(smartserver.__file__)


def _definitions(environment: Mapping[str, str]) -> list[str]:
    """Return the options of the compiler that define the facts about this installation.

    Raises:
        NotCompiled: the interpreter loads another installation if it is started by itself.
    """
    here = f"{smartserver.__version__}\n{smartserver.__file__}"
    code = "import smartserver; print(smartserver.__version__, smartserver.__file__, sep='\\n', end='')"
    if _run([sys.executable, "-E", "-P", "-c", code], environment) != here:
        raise NotCompiled(f"{sys.executable} loads another smartserver than {_folder()}")
    paths = [os.path.join(_folder(), each) for each in KNOWN]
    files = ", ".join(f"{{{_quoted(path)}, {os.stat(path).st_mtime_ns}LL}}" for path in paths)
    texts = {"PYTHON": sys.executable, "VERSION": smartserver.__version__, "FOLDER": _folder()}
    return [*[_defined(*each) for each in texts.items()], f"-DFILES={files}"]


def _defined(name: str, *texts: str) -> str:
    return f"-D{name}={', '.join(map(_quoted, texts))}"


def _quoted(text: str) -> str:
    """Return a text as a string of C."""
    return '"' + "".join(f"\\{byte:03o}" for byte in os.fsencode(text)) + '"'
