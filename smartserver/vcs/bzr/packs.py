"""Copies packs between Breezy's repositories, file by file, without reading a text.

The name of a pack is the MD5 of its content. A pack has whole revisions if its repository is not stacked. All packs of
the source are copied. Breezy does not use the copies until the list of packs names them.
"""

from __future__ import annotations

from typing import Any, Final

SUFFIXES: Final = (".rix", ".iix", ".tix", ".six", ".cix")


def copy_packs(source: Any, target: Any) -> bool:
    """Copy the packs of `source` to an empty `target` of the same format; both must be locked. Return False, and copy
    nothing, if this release of Breezy keeps packs differently."""
    there, here = source._pack_collection, target._pack_collection
    try:
        there.ensure_loaded()
        here.ensure_loaded()
        names = dict(there._names)
        places = [
            (there._pack_transport, here._pack_transport, [f"{name}.pack" for name in names]),
            (there._index_transport, here._index_transport, [name + suffix for name in names for suffix in SUFFIXES]),
        ]
        save = here._save_pack_names
    except AttributeError:
        return False
    for one, other, files in places:
        for name in files:
            with one.get(name) as file:
                other.put_file(name, file, mode=target.controldir._get_file_mode())
    here._names.update(names)
    save()
    here.all_packs()  # This makes Breezy read them.
    target.refresh_data()
    return True
