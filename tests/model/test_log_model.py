"""The log: with every rule no state that is found breaks a promise; without a rule one does."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import NamedTuple

import pytest
from log_model import LOST, STALE, TWICE, UNREADABLE, Rules, Scene, log_model
from state_search import explore, walk

BOUND = 200_000
"""States; the largest scene that is exhausted has 163,459. About 40,000 take a second."""
LARGE_BOUND = 10_000
"""States of a scene that is too large to exhaust; random walks of as many steps go deeper."""

FROZEN_WRITER = Scene(slots=6, writers=((1,),), fast=3, cleanings=2)
IDLE_READER = Scene(slots=6, readers=1, fast=3, cleanings=2)
OLD_LISTINGS = replace(FROZEN_WRITER, readers=1, is_cold=True, quick_cleaner=True, old_listings=True)
RETRIES = Scene(slots=4, writers=((1,), (1,), (2,)), lost_replies=True)
LATE_CREATIONS = Scene(slots=4, writers=((1, 2), (1,)), lost_replies=True, late_creations=True)
DAMAGE = Scene(slots=6, fast=3, cleanings=2, damages=1)
CREATOR = Scene(slots=6, writers=((1,),), fast=3, cleanings=2, has_creator=True)
POWER_LOSS = Scene(slots=5, writers=((1,), (1, 2)), readers=1, power_losses=1)
POWER_LOSS_WHILE_CLEANING = replace(FROZEN_WRITER, quick_cleaner=True, power_losses=1)
REPEATS_BY_STORE = Scene(slots=5, writers=((1, 2), (1,)), readers=1, reads=2, lost_replies=True, repeated_creations=2)
REPEATS_WHILE_CLEANING = Scene(
    slots=7, writers=((1, 2),), fast=4, cleanings=2, quick_cleaner=True, repeated_creations=1
)
BACKUP_FOR_WRITER = replace(FROZEN_WRITER, quick_cleaner=True, backup="whole")
BACKUP_FOR_READER = Scene(slots=6, writers=((1,),), readers=1, reads=2, fast=2, backup="whole")
SLOT_TAKEN_AGAIN_FOR_READER = Scene(
    slots=5, writers=((1,),), readers=1, reads=2, fast=4, cleanings=2, quick_cleaner=True
)
SLOT_TAKEN_AGAIN_FOR_WRITER = Scene(slots=5, writers=((1,), (2,)), fast=4, cleanings=2, quick_cleaner=True)

SMALL = {
    "a writer stops while records are deleted": FROZEN_WRITER,
    "a reader stops while records are deleted": IDLE_READER,
    "three writers contend, and replies are lost": RETRIES,
    "creations are late, and a request is repeated": LATE_CREATIONS,
    "the newest checkpoint is damaged": DAMAGE,
    "a creator saw no repository": CREATOR,
    "the store loses power, and a request is repeated": POWER_LOSS,
    "the store loses power after records were deleted": POWER_LOSS_WHILE_CLEANING,
    "a backup is put back below a writer": BACKUP_FOR_WRITER,
    "the store repeats creations, and replies are lost": REPEATS_BY_STORE,
    "the store repeats creations while records are deleted": REPEATS_WHILE_CLEANING,
}
"""Scenes that are exhausted."""

MIDDLE = {
    "listings are old, and servers open cold": OLD_LISTINGS,
    "a backup is put back below a reader": BACKUP_FOR_READER,
    "a slot is taken again below a writer": SLOT_TAKEN_AGAIN_FOR_WRITER,
    "a slot is taken again below a reader": SLOT_TAKEN_AGAIN_FOR_READER,
    "the store loses power, and a server crashes": replace(POWER_LOSS, reads=2, crashes=1),
}
"""The same, in some seconds each."""

LARGE = {
    "three writers contend": Scene(
        slots=6, writers=((1, 2), (1, 3), (2,)), crashes=1, lost_replies=True, late_creations=True
    ),
    "a writer and a reader stop": Scene(slots=8, writers=((1,),), readers=1, fast=5, cleanings=2, lost_replies=True),
    "two writers stop": Scene(slots=8, writers=((1,), (2,)), fast=4, cleanings=2),
    "two readers stop": Scene(slots=7, readers=2, reads=2, fast=5, cleanings=2),
    "a checkpoint is damaged": Scene(slots=7, writers=((1,),), readers=1, reads=2, fast=4, cleanings=3, damages=1),
    "the store repeats creations, and listings are old": Scene(
        slots=6,
        writers=((1, 2), (1,)),
        readers=1,
        fast=2,
        is_cold=True,
        old_listings=True,
        lost_replies=True,
        late_creations=True,
        repeated_creations=2,
    ),
    "listings are old": replace(OLD_LISTINGS, slots=7, fast=4, quick_cleaner=False),
    "power is lost while the cleaner works": replace(FROZEN_WRITER, slots=7, readers=1, fast=4, power_losses=1),
    "a creator among all others": replace(CREATOR, slots=7, readers=1, fast=4),
    "a backup is put back": Scene(slots=7, writers=((1, 2),), readers=1, reads=2, fast=3, backup="whole"),
    "a backup is copied over": Scene(slots=7, writers=((1, 2),), readers=1, fast=3, cleanings=1, backup="over"),
}


class Broken(NamedTuple):
    """A rule, a scene that needs it, and what is broken there without it."""

    rule: str
    scene: Scene
    kind: str


BROKEN = {
    "a record replaces another": Broken("exclusive", RETRIES, LOST),
    "a request is carried out again": Broken("find_own", RETRIES, TWICE),
    "a record follows a deleted one": Broken("writer_looks_back", FROZEN_WRITER, LOST),
    "a record follows one that a backup took away": Broken("writer_looks_back", BACKUP_FOR_WRITER, LOST),
    "deleted records are taken for records to come": Broken("reader_looks_back", IDLE_READER, STALE),
    "an old listing leads to deleted records": Broken("reader_looks_back", OLD_LISTINGS, STALE),
    "a newer record is deleted first": Broken("rising", IDLE_READER, STALE),
    "the only checkpoint is damaged": Broken("last_but_one", DAMAGE, UNREADABLE),
    "record 1 stays": Broken("from_record_1", IDLE_READER, STALE),
    "a repository is created over a living one": Broken("exclusive_format", CREATOR, LOST),
    "a retry is answered from a record that power loss takes": Broken("synced_repeat", POWER_LOSS, LOST),
    "a state has a record that power loss took": Broken("cold_after_loss", POWER_LOSS, LOST),
    "a deleted record comes back": Broken("outlives_repeats", REPEATS_WHILE_CLEANING, LOST),
    "power loss brings deleted records back": Broken("cold_after_loss", POWER_LOSS_WHILE_CLEANING, LOST),
}
BROKEN_FAR_AWAY = {
    "a backup joins two lines": Broken("passed_again", BACKUP_FOR_READER, STALE),
    "a writer takes another record for its own": Broken("by_content", SLOT_TAKEN_AGAIN_FOR_WRITER, LOST),
    "a reader takes another record for its own": Broken("by_content", SLOT_TAKEN_AGAIN_FOR_READER, STALE),
}
"""Found after tens of thousands of states."""
ALL_BROKEN = BROKEN | BROKEN_FAR_AWAY

LONG = [pytest.mark.long]


@pytest.mark.parametrize(
    "scene",
    [pytest.param(scene, id=name, marks=LONG * (name in MIDDLE)) for name, scene in (SMALL | MIDDLE).items()],
)
def test_every_state_keeps_the_promises(scene: Scene) -> None:
    result = explore(log_model(scene), BOUND)
    assert result.is_exhausted, str(result)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("scene", LARGE.values(), ids=LARGE)
def test_the_nearest_and_some_deep_states_keep_the_promises(scene: Scene, seed: int) -> None:
    model = log_model(scene)
    for result in explore(model, LARGE_BOUND), walk(model, LARGE_BOUND, seed):
        assert (result.states, result.kind) == (LARGE_BOUND, ""), str(result)


@pytest.mark.parametrize(
    "broken",
    [pytest.param(each, id=name, marks=LONG * (name in BROKEN_FAR_AWAY)) for name, each in ALL_BROKEN.items()],
)
def test_without_the_rule_a_promise_is_broken(broken: Broken) -> None:
    result = explore(log_model(broken.scene, Rules(**{broken.rule: False})), BOUND)
    assert result.kind == broken.kind, str(result)


def test_each_rule_is_needed() -> None:
    assert {each.rule for each in ALL_BROKEN.values()} == {field.name for field in dataclasses.fields(Rules)}


def test_a_walk_finds_what_is_broken() -> None:
    result = walk(log_model(RETRIES, Rules(find_own=False)), LARGE_BOUND, seed=1)
    assert result.kind == TWICE, str(result)
