"""No modules import each other in a circle, late imports and those for types alone included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from sources import PACKAGES, sources


def circles(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of two modules or more (Tarjan, SIAM J. Comput. 1, 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[set[str]]:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in number:
                yield from visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == number[module]:
            at = stack.index(module)
            found = set(stack[at:])
            del stack[at:]
            if len(found) > 1:
                yield found

    for module in imports:
        if module not in number:
            yield from visit(module)


def project_imports() -> dict[str, set[str]]:
    """Return, for each module of ours, the modules of ours that it imports."""
    found = sources(*PACKAGES)
    names = {source.module for source in found}

    def module_of(name: str) -> str:
        return name if name in names else name.rpartition(".")[0]

    return {
        source.module: ({module_of(name) for _, name in source.imports} & names) - {source.module} for source in found
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_none(package: str) -> None:
    assert [circle for circle in circles(project_imports()) if min(circle).startswith(package)] == []
