"""Metadata of the distribution; every tool's settings are in pyproject.toml."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup

here = Path(__file__).parent
readme = here / "README.md"
CRATE = Path("native", "Cargo.toml")

SCHEMES = ["hpss", "hpss+tls", "hpss+ssh", "hpss+sftp", "hpss+s3", "hpss+vfs"]
"""Git runs a program of its own for the URLs of each."""

BREEZY = ["breezy>=3.3,<3.4"]
MERCURIAL = ["mercurial>=6.3,<7.3"]
S3 = ["obstore>=0.12,<0.13"]
MEMCACHED = ["pymemcache>=4"]
METRICS = ["prometheus_client>=0.19"]
POSTGRES = ["psycopg[binary]>=3.2"]


def native_parts() -> dict[str, Any]:
    """Return the arguments that build the crate of native parts. Without cargo, or where it is too old or fails,
    everything is in Python."""
    try:
        from setuptools_rust import RustExtension
    except ImportError:
        return without("setuptools-rust is not here")
    cargo = shutil.which("cargo")
    if not (here / CRATE).exists():
        return without(f"{CRATE} is not here")
    if cargo is None:
        return without("cargo is not on PATH")
    wanted = re.search(r'^rust-version = "([0-9.]+)"', (here / CRATE).read_text(encoding="utf-8"), re.MULTILINE)
    asked = subprocess.run([cargo, "--version"], capture_output=True, text=True)
    found = re.search(r" ([0-9.]+)", asked.stdout)
    if asked.returncode or found is None:
        said = (asked.stderr.strip() or asked.stdout.strip() or f"status {asked.returncode}").splitlines()
        return without(f"{cargo} fails: {'; '.join(said[-2:])}")
    if wanted is None or numbers(found[1]) < numbers(wanted[1]):
        return without(f"cargo is {found[1]}, not {wanted[1] if wanted else 'known'} or newer")
    crate = RustExtension("smartserver._native", path=str(CRATE), args=["--locked"], debug=False, optional=True)
    return {"rust_extensions": [crate], "options": {"bdist_wheel": {"py_limited_api": "cp311"}}}


def without(why: str) -> dict[str, Any]:
    """Build nothing, and print a line that says why."""
    print(f"smartserver: the native parts are not built: {why}; all is in Python, and slower", file=sys.stderr)
    return {}


def numbers(version: str) -> list[int]:
    """Return a version as numbers, to be compared."""
    return [int(part) for part in version.split(".")]


setup(
    name="smartserver",
    version="0.1.0",
    description="Version-control hosting in which every remote operation is one round trip",
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    author="The smartserver developers",
    license="GPL-2.0-or-later",
    license_files=["LICENSE"],
    keywords=["version control", "git", "mercurial", "breezy", "rpc", "latency"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Environment :: No Input/Output (Daemon)",
        "Framework :: Pytest",
        "Framework :: Twisted",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        # POSIX and little-endian: files are locked with flock, and an index is a view of its bytes as they lie.
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Software Development :: Version Control",
        "Topic :: Software Development :: Version Control :: Git",
        "Topic :: System :: Networking",
        "Typing :: Typed",
    ],
    platforms=["Linux", "macOS"],
    python_requires=">=3.11",
    # Neither netem, which is a distribution of its own and would own the same files, nor a folder `breezy`, which would
    # be a namespace package where Breezy is not installed: `smartserver setup brz` makes the plugin known.
    packages=find_packages(include=["smartserver", "smartserver.*", "transports", "transports.*"]),
    py_modules=["hgext3rd.hpss"],  # Without an __init__: the package is Mercurial's.
    package_data={"smartserver": ["py.typed", "agent/thin.c", "trace/page.html"], "transports": ["py.typed"]},
    zip_safe=False,
    install_requires=[
        "Twisted[tls]>=23.8",
        "pyOpenSSL>=24.3",
        "zstandard>=0.22",
        "msgspec>=0.18",
        "click>=8.1",
        "paramiko>=3.4",
        "fastimport>=0.9.14",
    ],
    extras_require={
        "brz": BREEZY,
        "hg": MERCURIAL,
        "memcached": MEMCACHED,  # of `serve --memcached`
        "metrics": METRICS,  # of `serve --metrics`
        "postgres": POSTGRES,  # of stores whose logs are in a database
        "s3": S3,  # of s3:// URLs
        "test": [
            *BREEZY,  # the real one: tests/interop
            *MERCURIAL,  # the same
            *MEMCACHED,
            *METRICS,
            *POSTGRES,
            *S3,
            "pytest>=9",
            "hypothesis>=6.100",
            "ruff>=0.6",
            "mypy>=1.10",
            "types-paramiko",
            "types-setuptools",
            "dulwich>=0.22",  # git in Python, as a client of the gateway: tests/interop/test_gateway_git.py
            "pygit2>=1.14",  # libgit2 as a client of the gateway: tests/interop/test_gateway_git.py
            "loggerhead==2.0.3",  # the same, that uses Breezy as a library: tests/interop/test_brz_library.py
            "setuptools>=70.1",  # builds netem alone without asking an index: tests/house
            "setuptools-rust>=1.10",
        ],
    },
    entry_points={
        "console_scripts": [
            "smartserver=smartserver.cli.entry:main",
            *[f"git-remote-{scheme}=smartserver.cli.git_remote:main" for scheme in SCHEMES],
        ],
        "pytest11": ["smartserver.pytest_plugin=smartserver.pytest_plugin"],
    },
    **native_parts(),
)
