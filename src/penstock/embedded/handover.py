"""How does a database that a shared account had come to an account of its own?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from penstock.embedded.account import Account, usable_accounts
from penstock.embedded.folders import give_all
from penstock.embedded.place import Place, control_folder, pass_through, write_place
from penstock.errors import StateError


def hand_over(place: Place, environ: Mapping[str, str]) -> Place:
    """The same place, its files given to the best account that can be had; call it while no server runs.

    A crash in between does no harm: the next start gives away the rest.
    """
    account = better_account(place, environ)
    if account is None:
        return place
    try:
        pass_through(place.home, account)  # first: from now on no program of the old account finds its way in
        for folder in (place.data, place.run):
            give_all(folder, place.account.uid, account.uid, account.gid)
    except OSError as error:
        raise StateError(
            f"the files in {place.home} cannot be given to uid {account.uid}: {error}",
            hint=f"set PENSTOCK_PG_USER={place.account.uid} to leave them as they are",
        ) from error
    place = replace(place, account=account)
    write_place(place.project, place)
    return place


def better_account(place: Place, environ: Mapping[str, str]) -> Account | None:
    """One that nobody else runs as, where root has left its database to one that others share."""
    ours = os.geteuid() == 0 and control_folder(place.project).stat().st_uid == 0
    if not ours or not place.account.shared or environ.get("PENSTOCK_PG_USER"):
        return None
    for account in usable_accounts(environ, 0, 0, place.ident):
        reached = account.attempt(["/bin/sh", "-c", 'cd "$1"', "sh", str(place.home.parent)]).ok
        if reached and not account.shared:
            return account
    return None
