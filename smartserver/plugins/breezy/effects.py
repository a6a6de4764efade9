"""The allow list of options of a branch on a server that have an effect on a client.

A server stores a branch's options for all users who may write to it. Breezy would obey them as if its own user had set
them. Some options name programs (`post_commit_mailer`, `editor`, `po_merge.command`) or Python code (`post_commit`).
Others choose keys, turn off checks of signatures, upload files or say who commits. So an option that is not listed
here, even a plugin's, has no effect. `brz config` of the branch's URL shows and changes all options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from breezy import config

from smartserver.plugins.breezy.running import runs

RULES = frozenset({"append_revisions_only", "branch.fetch_tags", "nickname"})
"""The names of options whose values are not places: a prohibition, a rule for copying tags, and a nickname."""

PLACES = frozenset({"parent_location", "public_branch", "push_location", "submit_branch"})
"""The names of options whose values are locations. Breezy prints a location before it uses it."""


def has_effect(name: str, value: object) -> bool:
    """Tell whether an option from a server is obeyed. A section, or a list in place of a text, is not obeyed.

    A reference to another option (`{smtp_password}`) would put the user's own options into a location. A query
    (`?host-key=any`) would weaken the check of a machine's key.
    """
    if name not in RULES | PLACES or not isinstance(value, str):
        return False
    if any(is_reference for is_reference, _ in config.iter_option_refs(value)):
        return False
    return name in RULES or "?" not in value


class EffectiveSection(config.Section):  # type: ignore[misc]  # Breezy is not typed.
    """The options of a store that have an effect. The store is read only when an option that has an effect is
    requested."""

    def __init__(self, store: Any) -> None:
        self.id = None
        self._store = store

    @property
    def options(self) -> dict[str, str]:
        """The options that have an effect, by name."""
        sections = config.NameMatcher(self._store, None).get_sections()
        found = [(name, section.get(name)) for _, section in sections for name in section.iter_option_names()]
        return {name: value for name, value in found if has_effect(name, value)}

    def get(self, name: str, default: Any = None, expand: bool = True) -> Any:
        """Return the value of an option; the default if it has no effect."""
        return self.options.get(name, default) if name in RULES | PLACES else default


class EffectiveStack(config.BranchStack):  # type: ignore[misc]
    """The user's options for a branch, then the options of the branch that have an effect, then the user's options for
    all branches.

    `brz config` gets all options of the branch, because it only shows them.
    """

    def iter_sections(self) -> Iterator[tuple[Any, Any]]:
        """Yield each section together with its store."""
        *first, _, last = self.sections_def
        if runs("config"):
            yield from super().iter_sections()
            return
        for sections in first:
            yield from sections()
        yield self.store, EffectiveSection(self.store)
        yield from last()


class EffectiveConfig(config.TransportConfig):  # type: ignore[misc]
    """The options that have an effect, for reading by Breezy's older interface (`Branch.get_config`)."""

    def _get_configobj(self) -> Any:
        found = super()._get_configobj()
        for name in list(found):
            if not has_effect(name, found[name]):
                del found[name]
        return found


class _Options:
    """Takes the place of a branch with the options `content`, for Breezy's stack of configurations."""

    def __init__(self, url: str, content: bytes) -> None:
        self.base = url
        self._content = content

    def _get_config_store(self) -> Any:
        store = config.IniFileStore()
        store._load_from_string(self._content)
        return store


def only_appends(url: str, content: bytes) -> bool:
    """Tell whether a branch with these options accepts only revisions on top of its tip."""
    return bool(EffectiveStack(_Options(url, content)).get("append_revisions_only"))
