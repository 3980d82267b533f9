"""The supervised stack in the hands of a person who stops it in every rude way."""

from __future__ import annotations

import os
import pty
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from config.embedded import servers
from tests.stack.live import LiveStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

NewStack = Callable[..., LiveStack]


@pytest.fixture
def new_stack(tmp_path: Path) -> Iterator[NewStack]:
    """Makes stacks on one data folder; whatever a failed test leaves is ended."""
    made: list[LiveStack] = []

    def make(**popen: object) -> LiveStack:
        made.append(LiveStack(tmp_path / "data", **popen))
        return made[-1]

    yield make
    for stack in made:
        stack.end()


def test_ctrl_c_ends_everything_and_kill_9_leaves_nothing_and_the_data_stay(
    new_stack: NewStack,
) -> None:
    stack = new_stack().start_ready()
    with psycopg.connect(stack.state()["database_url"]) as database:
        database.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    assert stack.command("migrate", "--check").returncode == 0
    refused = new_stack().start()
    assert refused.process.wait(30) == 1
    assert f"A stack already runs on {stack.data_dir}" in refused.said()

    stack.process.send_signal(signal.SIGINT)
    stack.process.send_signal(signal.SIGINT)
    assert stack.process.wait(40) == 0
    assert stack.survivors() == []
    assert stack.state() == {}

    again = new_stack().start_ready()
    with psycopg.connect(again.state()["database_url"]) as database:
        assert database.execute("SELECT answer FROM kept").fetchone() == (42,)
    again.process.kill()
    assert again.survivors() == []
    assert "No stack runs in this checkout" in again.command("showmigrations").stderr


def test_dead_parts_and_servers_are_started_again(new_stack: NewStack) -> None:
    stack = new_stack().start_ready()
    before = {n: stack.pid_of(n) for n in ("worker-tool", "web", "PostgreSQL", "Valkey")}
    children = stack.process_of(before["worker-tool"]).children()
    assert children, "a prefork worker has children"

    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    stack.wait_until(lambda: all(stack.pid_of(n) != pid for n, pid in before.items()))
    stack.wait_until(lambda: _answers(stack) and stack.log().count("worker-tool     ready") == 2)
    assert stack.survivors(children) == []
    assert "worker-tool was ended by SIGKILL" in stack.said()
    stack.family += stack.descendants()
    stack.process.terminate()
    assert stack.process.wait(40) == 0
    assert stack.survivors() == []


def test_given_servers_are_used_and_left_running(new_stack: NewStack, tmp_path: Path) -> None:
    with servers(tmp_path / "theirs") as given:
        stack = new_stack()
        stack.environment |= {
            "DATABASE_URL": given.database_url,
            "BROKER_URL": given.broker_url,
        }
        stack.start_ready()

        assert stack.state()["database_url"] == given.database_url
        assert "PostgreSQL" not in stack.state()["processes"]
        assert not (stack.data_dir / "postgres").exists()
        stack.process.terminate()
        assert stack.process.wait(40) == 0
        assert stack.survivors() == []
        assert given.postgres.alive
        assert given.valkey.alive


def test_once_ends_with_the_status_of_its_command(new_stack: NewStack) -> None:
    stack = new_stack().start("--no-flower", "--once", "--then", "migrate", "--check")

    assert stack.process.wait(60) == 0, stack.said()
    assert "nothing runs any more" in stack.said()
    assert new_stack().start("--once", "--then", "no-such-command").process.wait(60) == 1


def test_closing_the_terminal_ends_everything(new_stack: NewStack) -> None:
    terminal, ours = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        os.ttyname(0)
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # becomes the controlling terminal

    stack = new_stack(
        stdin=ours, stdout=ours, stderr=ours, start_new_session=False, preexec_fn=own_terminal
    ).start()
    os.close(ours)
    stack.wait_until(lambda: bool(stack.state()))
    stack.family = [stack.process_of(stack.process.pid), *stack.descendants()]

    os.close(terminal)

    assert stack.process.wait(40) == 0
    assert stack.survivors() == []
    assert "nothing runs any more" in stack.log()


def test_a_port_in_use_is_one_sentence_before_anything_starts(new_stack: NewStack) -> None:
    stack = new_stack()
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", stack.web_port))
        foreign.listen()
        assert stack.start().process.wait(30) == 1

    said = stack.said().strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"Port {stack.web_port} on 127.0.0.1 cannot be used")
    assert "set WEB_PORT" in said[0]
    assert not (stack.data_dir / "postgres").exists()


def test_a_broken_data_folder_is_one_sentence(new_stack: NewStack) -> None:
    stack = new_stack()
    (stack.data_dir / "postgres").mkdir(parents=True)
    (stack.data_dir / "postgres" / "half-copied").touch()

    assert stack.start().process.wait(30) == 1
    assert "is not a whole PostgreSQL cluster: move it away" in stack.said()
    assert "Traceback" not in stack.said()


def test_a_data_folder_that_cannot_be_used_is_one_sentence(new_stack: NewStack) -> None:
    stack = new_stack()
    stack.data_dir.parent.joinpath("file").touch()
    stack.environment["DATA_DIR"] = str(stack.data_dir.parent / "file" / "below")

    assert stack.start().process.wait(30) == 1
    assert "below cannot be used (Not a directory)" in stack.said()
    assert "Traceback" not in stack.said()


def test_bad_variables_are_named_all_at_once(new_stack: NewStack) -> None:
    stack = new_stack()
    stack.environment |= {"DATABASE_URL": "mysql://db/x", "LEASE_SECONDS": "soon"}

    assert stack.start().process.wait(30) == 1
    assert "DATABASE_URL: must look like postgresql://" in stack.said()
    assert "LEASE_SECONDS: " in stack.said()
    assert "Traceback" not in stack.said()


def _answers(stack: LiveStack) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{stack.web_port}/admin/login/") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
