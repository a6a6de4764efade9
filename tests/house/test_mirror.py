"""Every module has a test file of its own: one below tests/unit that is named after it and imports it."""

from __future__ import annotations

from sources import Source, sources

MIRRORED = ("smartserver/records", "smartserver/store", "smartserver/verbs", "smartserver/wire", "transports", "netem")


def named_after(module: Source, tests: tuple[Source, ...]) -> list[Source]:
    """Test files whose name ends with the module's (`wire/frames.py`: `test_frames.py`, `test_wire_frames.py`) and
    that import it."""
    stem = module.module.rpartition(".")[2]
    named = [test for test in tests if f"_{test.module.rpartition('.')[2]}".endswith(f"_{stem}")]
    return [
        test
        for test in named
        if any(name == module.module or name.startswith(module.module + ".") for _, name in test.imports())
    ]


def test_every_module_has_its_test_file() -> None:
    tests = sources("tests/unit")
    modules = [module for module in sources(*MIRRORED) if not module.is_package]
    alone = [module.path for module in modules if not named_after(module, tests)]
    assert not alone, "no file below tests/unit is named after and imports:\n" + "\n".join(alone)


def test_the_check_finds_its_own_kind() -> None:
    tests = sources("tests/unit")
    local = next(module for module in sources("transports") if module.path == "transports/local.py")
    assert [test.path for test in named_after(local, tests)] == ["tests/unit/transports/test_transport_local.py"]
    assert not named_after(local, tuple(test for test in tests if "local" not in test.path))
