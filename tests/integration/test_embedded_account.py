"""Can anybody but Penstock get at the database, when root starts it?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.embedded import account as accounts
from penstock.embedded import attachment, configuration, launch, place
from penstock.embedded.account import UNUSED, Account, entry, unused
from penstock.embedded.locks import try_lock
from penstock.embedded.place import Place, read_place
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres

ENVIRON = {"PATH": os.environ["PATH"], "PENSTOCK_PG_LINGER": "0"}
NOBODY = Account(65534, 65534)
STRANGER = Account(54321, 54321)
SOURCES = Path(place.__file__).parents[3]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another account")


def placed(project: Path) -> Place:
    found = read_place(project)
    assert found is not None
    return found


@pytest.fixture
def project() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="account-")).resolve()
    made.chmod(0o755)
    yield made
    stopped(made)
    shutil.rmtree(made)


def stopped(project: Path) -> None:
    held = poll(lambda: try_lock(placed(project).server_lock), 20)
    assert held is not None, "a server is left"
    os.close(held)


def hba_file(server: EmbeddedPostgres) -> str:
    with psycopg.connect(server.dsn) as line:
        found = line.execute("show hba_file").fetchone()
    assert found is not None
    return str(found[0])


def deeds(project: Path, hba: str, who: Account) -> set[str]:
    """What this account can do to the server of the project."""
    own, pid = placed(project), EmbeddedPostgres.inspect(project, ENVIRON).running_pid
    tries = {
        "edit who gets in": f'echo "local all all trust" > "{hba}"',
        "replace who gets in": f'cd "{Path(hba).parents[1]}" && mv "{Path(hba).parent}" x && mv x "{Path(hba).parent}"',
        "read rows": f'cat "{own.data}/PG_VERSION"',
        "reach the socket": f'test -S "{own.socket}"',
        "read the password": f'cat "{project}/.penstock/pg/secret"',
        "signal the server": f"kill -HUP {pid}",
    }
    return {deed for deed, script in tries.items() if who.attempt(["/bin/sh", "-c", script]).ok}


def gets_in(project: Path) -> bool:
    """Whether the server takes somebody without the password, who has reached its socket."""
    try:
        psycopg.connect(host=str(placed(project).run), port=5432, user="postgres", dbname="postgres").close()
    except psycopg.OperationalError as error:
        assert "no password supplied" in str(error)
        return False
    return True


def test_the_server_of_root_runs_as_nobody_else_and_cannot_change_who_gets_in(project: Path) -> None:
    (project / ".penstock" / "pgdata").mkdir(parents=True)  # left by somebody, open to all
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        seen, own = EmbeddedPostgres.inspect(project, ENVIRON), placed(project)
        assert Path("/proc", str(seen.running_pid)).stat().st_uid == own.account.uid
        assert entry(str(own.account.uid)) is None
        assert any(own.account.uid in numbers for numbers in UNUSED)
        assert seen.account == f"uid {own.account.uid}, which nothing else runs as"
        hba = hba_file(server)
        for who in (NOBODY, STRANGER):
            assert deeds(project, hba, who) == set()
        assert deeds(project, hba, own.account) == {"read rows", "reach the socket", "signal the server"}
        assert own.home.stat().st_mode & 0o067 == 0
        for file in own.configuration.iterdir():
            assert (file.stat().st_uid, file.stat().st_mode & 0o022) == (0, 0)
        assert not gets_in(project)
        with psycopg.connect(server.dsn, autocommit=True) as line, pytest.raises(psycopg.Error, match="ALTER SYSTEM"):
            line.execute("alter system set hba_file = '/tmp/x'")


def as_it_was(patch: pytest.MonkeyPatch) -> None:
    """The server as nobody, with its configuration among its data."""

    def in_data(place: Place, programs: configuration.Programs) -> list[str]:
        words, files = configuration.command(place, programs), ("config_file", "hba_file", "ident_file")
        left_out = [n for n, word in enumerate(words) if word.partition("=")[0] in files]
        return [word for n, word in enumerate(words) if n not in left_out and n + 1 not in left_out]

    patch.setattr(place, "usable_accounts", lambda *_: iter([NOBODY]))
    patch.setattr(place, "pass_through", lambda home, account: os.chown(home, account.uid, account.gid))
    patch.setattr(attachment, "hand_over", lambda place, environ: place)
    patch.setattr(launch, "command", in_data)


def test_as_it_was_any_program_of_nobody_got_in_and_the_next_start_takes_its_files_away(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        as_it_was(patch)
        with EmbeddedPostgres.attach(project, ENVIRON) as server:
            with psycopg.connect(server.dsn) as line:
                line.execute("create table seen as select 1 as n")
            assert str(EmbeddedPostgres.inspect(project, ENVIRON).account).endswith("other programs may run as, too")
            assert not gets_in(project)
            assert {"edit who gets in", "signal the server"} <= deeds(project, hba_file(server), NOBODY)
            assert poll(lambda: gets_in(project) or None, 20), "the trick is known to work"
        stopped(project)

    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        own = placed(project)
        assert not own.account.shared
        assert deeds(project, hba_file(server), NOBODY) == set()
        assert not gets_in(project)
        with psycopg.connect(server.dsn) as line:
            assert line.execute("select n from seen").fetchone() == (1,)
        owners = {path.lstat().st_uid for path in own.home.rglob("*")}
        assert owners == {0, own.account.uid}
    stopped(project)
    with EmbeddedPostgres.attach(project, ENVIRON):
        assert placed(project).account == own.account, "it is chosen once"


def test_where_no_unused_number_can_be_had_the_server_runs_and_doctor_says_as_whom(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UNUSED", (range(2**32, 2**32 + 9),))
    with EmbeddedPostgres.attach(project, ENVIRON):
        assert placed(project).account == NOBODY
        assert EmbeddedPostgres.inspect(project, ENVIRON).account == "nobody, which other programs may run as, too"


def test_a_number_is_nobodys_and_mostly_the_same() -> None:
    numbers = range(60_514, 60_524)
    first = unused(numbers, "a")
    assert first in numbers
    assert unused(numbers, "a") == first
    with subprocess.Popen(["sleep", "60"], user=first) as busy:
        assert unused(numbers, "a") not in (first, None)
        busy.kill()
    assert unused(range(65534, 65535), "a") is None
    assert unused(range(1), "a") is None


SAYS = """
import os, sys
from pathlib import Path
from penstock.embedded.server import EmbeddedPostgres
print(*EmbeddedPostgres.inspect(Path(sys.argv[1]), os.environ).problems)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv here")
@pytest.mark.parametrize("lacking", ["setuid", "chown"])
def test_without_the_rights_to_act_for_another_account_an_inspection_says_so(tmp_path: Path, lacking: str) -> None:
    words = ["setpriv", f"--bounding-set=-{lacking}", f"--inh-caps=-{lacking}", sys.executable, "-c", SAYS]
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([*words, str(tmp_path)], env=environ, capture_output=True, text=True, check=False)
    assert "root cannot run it as another account here" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
