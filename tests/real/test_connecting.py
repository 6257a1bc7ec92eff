"""Where a client looks for its node, if nobody says it: in a folder that nobody else could have made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duckrow.node import connecting
from duckrow.node.addresses import Unix
from duckrow.node.errors import Refused


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unix:
    own = Unix(f"{tmp_path}/duckrow/node.sock")
    monkeypatch.setattr(connecting, "own_socket", lambda _environ, _uid: own)
    return own


def test_a_folder_that_is_not_there_yet_or_that_is_ours_is_taken(own: Unix) -> None:
    assert connecting.addresses(None, {}) == (own,)
    Path(own.path).parent.mkdir()
    assert connecting.addresses(None, {}) == (own,)


def test_a_folder_that_somebody_else_made_is_refused(
    own: Unix, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(own.path).parent.mkdir()
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)

    with pytest.raises(Refused, match=f"belongs to user {me}, who could read what goes there"):
        connecting.addresses(None, {})
    assert connecting.addresses(None, {"XDG_RUNTIME_DIR": "/run/user/7"}) == (own,)
