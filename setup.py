"""Metadata of the distribution; every tool's settings are in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    name="smartserver",
    version="0.1.0",
    description="Version-control hosting in which every remote operation is one round trip",
    license="GPL-2.0-or-later",
    python_requires=">=3.11",
    packages=find_packages(include=["smartserver*", "transports*", "netem*"]),
    install_requires=["Twisted>=23.8", "zstandard>=0.22", "msgspec>=0.18", "click>=8.1", "paramiko>=3.4", "fastimport>=0.9.14"],
    extras_require={"test": ["pytest>=8", "hypothesis>=6.100", "ruff>=0.6", "mypy>=1.10"]},
    entry_points={
        "console_scripts": [
            "smartserver=smartserver.cli.main:main",
            "git-remote-hpss=smartserver.cli.git_remote:main",
            "netem=netem.cli:main",
        ],
        "pytest11": ["netem=netem.pytest_plugin"],
    },
)
