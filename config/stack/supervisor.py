"""Starts the parts in order, watches them, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from config import embedded
from config.embedded import Child, Server, ServerError
from config.embedded.process import stop_together
from config.env import Environment, generated_secret
from config.lifeline import die_with_parent
from config.stack import parts, state
from config.stack.forked import ForkedChild
from config.stack.parts import Part
from config.stack.preload import aim, preload
from config.stack.voice import Voice
from config.stack.watch import StopRequestedError, Watch

START_SECONDS = 90.0
LONGEST_PAUSE = 10.0  # between restarts of a part that keeps dying
STEADY_SECONDS = 60.0  # after which an old death is forgiven
LOG_BYTES = 10_000_000


@dataclass
class Running:
    """A part or server under supervision."""

    child: Child
    part: Part | None = None
    server: Server | None = None
    ready: bool = False
    deaths: int = 0
    started: float = field(default_factory=time.monotonic)
    restart_at: float | None = None

    @property
    def name(self) -> str:
        """The name for people and logs."""
        return self.child.name


class Supervisor:
    """The parent of every process of the stack.

    ``then`` is a command that runs at the terminal once all is ready; with ``once`` the stack stops
    when it has ended, with its exit status.
    """

    def __init__(
        self, env: Environment, *, then: Sequence[str] = (), once: bool = False, flower: bool = True
    ) -> None:
        self._env = env
        self._data_dir = env.data_dir.resolve()
        self._then = list(then)
        self._once = once
        self._flower = flower
        self._running: list[Running] = []
        self._announced: set[str] = set()
        self._guest: subprocess.Popen[bytes] | None = None
        self._began = time.monotonic()

    def run(self) -> int:
        """Run until told to stop; the exit status. 1 when the stack could not start or go on."""
        try:
            handle = state.lock(self._data_dir)
        except ServerError as error:
            sys.stdout.write(f"{error}\n")
            return 1
        self._voice = Voice(self._log("stack"))
        self._watch = Watch(f"orchestrator-{os.getpid()}")
        try:
            return self._live()
        except StopRequestedError:
            return 0
        except ServerError as error:
            self._voice.say(str(error))
            return 1
        finally:
            self._stop()
            self._watch.close()
            os.close(handle)

    # -- start ------------------------------------------------------------------------------------
    def _live(self) -> int:
        self._check_ports()
        self._urls = self._start_servers()
        os.environ.update(self._urls)
        aim(self._urls)
        preload()
        self._await_servers()
        self._migrate()
        self._launch_all(self._wanted_parts())
        self._await_parts()
        self._publish()
        self._greet()
        if self._then:
            self._start_guest()
        return self._supervise()

    def _check_ports(self) -> None:
        wanted = [(self._env.web_host, self._env.web_port, "WEB_PORT")]
        if self._flower:
            wanted.append(("127.0.0.1", self._env.flower_port, "FLOWER_PORT"))
        for host, port, variable in wanted:
            if complaint := parts.check_port_free(host, port, variable):
                raise ServerError(complaint)

    def _start_servers(self) -> dict[str, str]:
        servers: dict[str, Server] = {}
        if self._env.database_url is None:
            servers["DATABASE_URL"] = embedded.cluster(self._data_dir)
        if self._env.broker_url is None:
            servers["BROKER_URL"] = embedded.broker(self._data_dir)
        for server in servers.values():
            server.prepare()
            self._launch(Running(server.server(), server=server))
        given = {"DATABASE_URL": self._env.database_url, "BROKER_URL": self._env.broker_url}
        return {name: given[name] or servers[name].url for name in given}

    def _await_servers(self) -> None:
        for running in self._running:
            if running.server is None:
                continue
            embedded.wait_ready(running.server, running.child, meanwhile=self._watch.check)
            running.ready = True
            self._voice.say(f"  {running.name:<15} {self._age(running)}  {running.server.data}")

    def _migrate(self) -> None:
        migration = self._child(parts.migrate())
        running = Running(migration, part=parts.migrate())
        self._launch(running)
        while migration.alive:
            self._watch.pause(60)
        self._running.remove(running)
        migration.kill()
        assert migration.process is not None
        if migration.process.returncode != 0:
            raise ServerError(
                f"The migrations failed: {migration.last_words()} (the whole log is"
                f" {migration.log})."
            )
        self._voice.say(f"  {'migrations':<15} {self._age(running)}")

    def _wanted_parts(self) -> list[Part]:
        password = generated_secret(self._data_dir / "flower_password")
        wanted = parts.all_parts(self._env, password)
        return [part for part in wanted if part.name != "flower" or self._flower]

    def _launch_all(self, wanted: Iterable[Part]) -> None:
        for part in wanted:
            self._launch(Running(self._child(part), part=part))

    def _await_parts(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not self._all_ready():
            dead = [r for r in self._running if not r.child.alive]
            if dead:
                raise ServerError(_epitaph(dead[0]))
            if time.monotonic() > until:
                late = ", ".join(r.name for r in self._running if not r.ready)
                raise ServerError(f"Not ready after {START_SECONDS:.0f} s: {late}.")
            self._watch.pause(0.05)

    def _all_ready(self) -> bool:
        self._announced |= self._watch.announcements()
        for running in self._running:
            if not running.ready and self._serves(running):
                running.ready = True
                self._voice.say(f"  {running.name:<15} {self._age(running)}")
        return all(running.ready for running in self._running)

    def _serves(self, running: Running) -> bool:
        if running.server is not None:
            return running.server.answers()
        assert running.part is not None
        if running.part.announces:
            return running.name in self._announced
        return running.part.port is None or parts.accepts(running.part.port)

    def _child(self, part: Part) -> Child:
        announce = {"NOTIFY_SOCKET": self._watch.address, "STACK_PROCESS": part.name}
        return ForkedChild(
            name=part.name,
            argv=(),
            log=self._log(part.name),
            stop_signals=part.stop_signals,
            run=part.run,
            env={**announce, **part.env},
        )

    def _launch(self, running: Running) -> None:
        # On the list first: a signal in mid-start must find it.
        self._running.append(running)
        running.child.start()

    # -- while it runs ----------------------------------------------------------------------------
    def _supervise(self) -> int:
        while True:
            self._watch.pause(self._next_due())
            if self._guest is not None and self._guest.poll() is not None:
                status, self._guest = self._guest.returncode, None
                if self._once:
                    return status
            self._bury_and_revive()
            self._all_ready()

    def _next_due(self) -> float:
        due = [r.restart_at for r in self._running if r.restart_at is not None]
        soonest = min(due, default=time.monotonic() + 60) - time.monotonic()
        # A child's end wakes the pause; that a revived one serves again must be asked.
        return max(0.0, min(soonest, 60 if all(r.ready for r in self._running) else 0.2))

    def _bury_and_revive(self) -> None:
        now = time.monotonic()
        for running in self._running:
            if running.restart_at is None and not running.child.alive:
                self._bury(running, now)
            elif running.restart_at is not None and running.restart_at <= now:
                self._revive(running, now)

    def _bury(self, running: Running, now: float) -> None:
        running.child.kill()
        if now - running.started > STEADY_SECONDS:
            running.deaths = 0
        pause = min(0.25 * 2**running.deaths, LONGEST_PAUSE)
        running.deaths += 1
        running.ready = False
        running.restart_at = now + pause
        self._announced.discard(running.name)
        self._voice.say(f"{_epitaph(running)} Starting it again in {pause:.1f} s.")

    def _revive(self, running: Running, now: float) -> None:
        running.restart_at = None
        running.started = now
        if running.server is not None:
            running.server.prepare()
        running.child.start()
        self._publish()

    # -- the guest at the terminal ----------------------------------------------------------------
    def _start_guest(self) -> None:
        parent = os.getpid()
        self._guest = subprocess.Popen(  # noqa: S603 - a command of this product, no shell
            self._then,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent=parent),
        )

    def _stop_guest(self) -> None:
        if self._guest is None:
            return
        self._guest.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._guest.wait(5)
        self._guest.kill()
        self._guest.wait()

    # -- the end ----------------------------------------------------------------------------------
    def _stop(self) -> None:
        if self._running:
            self._voice.say("Stopping.")
        state.remove(self._data_dir)
        self._stop_guest()
        stop_together([r.child for r in self._running if r.server is None])
        servers = [r for r in self._running if r.server is not None]
        stop_together([r.child for r in servers])
        for running in servers:
            assert running.server is not None
            running.server.tidy()
        if self._running:
            self._voice.say("Stopped; nothing runs any more.")

    # -- what it tells ----------------------------------------------------------------------------
    def _publish(self) -> None:
        state.write(
            self._data_dir,
            {
                "database_url": self._urls["DATABASE_URL"],
                "broker_url": self._urls["BROKER_URL"],
                "links": self._links(),
                "processes": {r.name: r.child.pid for r in self._running},
            },
        )

    def _links(self) -> dict[str, str]:
        web = self._env.public_url or f"http://localhost:{self._env.web_port}"
        links = {"Console": f"{web}/admin/", "API": f"{web}/v1/docs/"}
        if self._flower:
            links["Flower"] = f"http://localhost:{self._env.flower_port}/"
        return links

    def _greet(self) -> None:
        self._voice.say(f"\nREADY after {time.monotonic() - self._began:.1f} s. Ctrl-C stops all.")
        for name, link in self._links().items():
            self._voice.say(f"  {name:<15} {link}")
        if self._flower:
            where = self._data_dir / "flower_password"
            self._voice.say(f"  {'':<15} user {parts.FLOWER_USER}, password in {where}")
        self._voice.say(f"  {'Logs':<15} {self._data_dir / 'logs'}\n")

    def _age(self, running: Running) -> str:
        return f"ready in {time.monotonic() - running.started:4.1f} s"

    def _log(self, name: str) -> Path:
        """The log of a part; one that has grown large is put aside once, at the start."""
        log = self._data_dir / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        return log


def _epitaph(running: Running) -> str:
    assert running.child.process is not None
    status = running.child.process.returncode
    if status == -signal.SIGKILL:  # it had no time for a word
        return f"{running.name} was ended by SIGKILL ({running.child.log})."
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended ({status})"
    return f"{running.name} {how}: {running.child.last_words() or 'no word'} ({running.child.log})."
