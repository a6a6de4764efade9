"""Copies of packs between Breezy's repositories: a repository gets the files of another one, and no text is read.

A pack has the MD5 of its content as its name, and whole revisions where its repository is not stacked. All that the
other repository has is copied. Until the list of packs names the copies they count for nothing.
"""

from __future__ import annotations

from typing import Any, Final

SUFFIXES: Final = (".rix", ".iix", ".tix", ".six", ".cix")


def copy_packs(source: Any, target: Any) -> bool:
    """Have an empty repository hold the packs of another of the same format, both locked; whether it does.

    Where a release of Breezy keeps packs otherwise nothing is copied.
    """
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
    here.all_packs()  # Which has them read.
    target.refresh_data()
    return True
