"""Metadata of the distribution; every tool's settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

readme = Path(__file__).parent / "README.md"

SCHEMES = ["hpss", "hpss+tls", "hpss+ssh", "hpss+sftp", "hpss+s3", "hpss+vfs"]
"""Git runs a program of its own for the URLs of each."""

BREEZY = ["breezy>=3.3,<3.4"]
MERCURIAL = ["mercurial>=6.3,<7.3"]
S3 = ["obstore>=0.12,<0.13"]
MEMCACHED = ["pymemcache>=4"]
METRICS = ["prometheus_client>=0.19"]
POSTGRES = ["psycopg[binary]>=3.2"]

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
            "dulwich>=0.22",  # a program of other people, watched: tests/examples
            "loggerhead==2.0.3",  # the same, that uses Breezy as a library: tests/interop/test_brz_loggerhead.py
            "setuptools>=70.1",  # builds netem alone without asking an index: tests/house
        ],
    },
    entry_points={
        "console_scripts": [
            "smartserver=smartserver.cli.entry:main",
            *[f"git-remote-{scheme}=smartserver.cli.git_remote:main" for scheme in SCHEMES],
        ],
        "pytest11": ["smartserver.pytest_plugin=smartserver.pytest_plugin"],
    },
)
