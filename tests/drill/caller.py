"""A client of the API over real HTTP, with a log of its own of what was acknowledged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from io import StringIO
from uuid import UUID, uuid4

import httpx
from django.core.management import call_command

from config.embedded.valkey import free_port
from orchestrator.models import Run
from tests.chaos.shapes import TENANT, Input, Shape
from tests.drill.scene import Scene


@dataclass
class Wish:
    """A run that somebody wants; ``answers``: status and seconds of each try."""

    key: str
    shape: Shape
    input: Input
    run: UUID | None = None
    answers: list[tuple[int, float]] = field(default_factory=list)


class Caller:
    """Starts runs by POST until each is acknowledged; never forgets one that was."""

    def __init__(self, here: Scene) -> None:
        self.here = here
        port = free_port()
        here.fleet.start("web", port=port)
        said = StringIO()
        call_command(
            "token", "create", "drill", tenant=TENANT, scope=["all"], stdout=said, stderr=StringIO()
        )
        headers = {"Authorization": f"Bearer {said.getvalue().strip()}"}
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30)
        self.wishes: list[Wish] = []
        self.without_retry_after = 0
        here.fleet.until(self._is_up, 40)

    def _is_up(self) -> bool:
        try:
            return self.http.get("/v1/workflows").status_code == 200
        except httpx.TransportError:
            return False

    def wish(self, shape: Shape, given: Input) -> Wish:
        """One more run, asked for once."""
        wish = Wish(f"wish-{uuid4()}", shape, given)
        self.wishes.append(wish)
        self.ask(wish)
        return wish

    def ask(self, wish: Wish) -> int:
        """Ask for it (again): the answer's status."""
        began = time.monotonic()
        response = self.http.post(
            f"/v1/workflows/{wish.shape.name}",
            json={"input": wish.input},
            headers={"Idempotency-Key": wish.key},
        )
        wish.answers.append((response.status_code, time.monotonic() - began))
        if response.status_code == 503 and "retry-after" not in response.headers:
            self.without_retry_after += 1
        if response.is_success:
            wish.run = UUID(response.json()["instance_id"])
        return response.status_code

    def ask_until_acknowledged(self, seconds: float = 30) -> None:
        """What was refused is asked for again, with the same key."""
        for wish in self.wishes:
            while wish.run is None:
                self.here.fleet.until(lambda wish=wish: 200 <= self.ask(wish) < 300, seconds)

    def wrong(self) -> list[str]:
        """Acknowledged, and lost, open, or ended otherwise than it should."""
        broken: list[str] = []
        for wish in self.wishes:
            run = Run.objects.filter(pk=wish.run).first()
            if run is None:
                broken.append(f"{wish.key} was acknowledged as {wish.run}, and is lost")
            elif (run.state, run.output) != (wish.shape.state, wish.shape.expected(wish.input)):
                broken.append(f"{wish.key}, {wish.shape.name} {run.pk}: {run.state} {run.output}")
        return broken

    def runs(self) -> list[UUID]:
        """What was acknowledged."""
        return [wish.run for wish in self.wishes if wish.run is not None]

    def statuses(self, *wishes: Wish) -> list[int]:
        """Every status that was answered."""
        return [status for wish in wishes or self.wishes for status, _ in wish.answers]
