"""``make check``: everything a machine can say about the code, one line each."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
AUDIT_SECONDS = 60


@dataclass(frozen=True)
class Check:
    """One tool with its arguments; green is exit status 0."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def production() -> dict[str, str]:
    """A made-up production environment, for the deployment check."""
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings.prod",
        "SECRET_KEY": secrets.token_urlsafe(48),
        "DATABASE_URL": "postgresql://orchestrator@db.example/orchestrator",
        "BROKER_URL": "redis://broker.example:6379/0",
        "ALLOWED_HOSTS": "orchestrator.example",
    }


def checks() -> list[Check]:
    """In the order from fast to slow."""
    python = sys.executable
    return [
        Check("format", (str(BIN / "ruff"), "format", "--check", "--output-format=concise", ".")),
        Check("lint", (str(BIN / "ruff"), "check", "--output-format=concise", ".")),
        Check("layers", (str(BIN / "lint-imports"), "--no-logo")),
        Check(
            "migrations",
            (python, "-W", "ignore", "manage.py", "makemigrations", "--check", "--dry-run"),
        ),
        Check(
            "deployment",
            (python, "manage.py", "check", "--deploy", "--fail-level", "WARNING"),
            production(),
        ),
        Check("types", (str(BIN / "mypy"), "config", *_packages(), "manage.py")),
    ]


def main() -> None:
    """Run all checks, print a line for each, the output of those that fail; status 1 if any did."""
    failed = [check.name for check in checks() if not _passes(check)]
    if not _has_no_known_holes():
        failed.append("known holes")
    if failed:
        sys.exit(f"make check: {', '.join(failed)} failed")


def _packages() -> list[str]:
    return ["orchestrator", "workflows_app", "approvals_app"]


def _passes(check: Check) -> bool:
    began = time.monotonic()
    done = subprocess.run(
        check.argv,
        cwd=ROOT,
        env=os.environ | check.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    _line(check.name, "ok" if done.returncode == 0 else "FAILED", time.monotonic() - began)
    if done.returncode != 0:
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
    return done.returncode == 0


def _has_no_known_holes() -> bool:
    """Ask the public list of vulnerabilities; without a network say so and go on."""
    began = time.monotonic()
    argv = (str(BIN / "pip-audit"), "-r", "requirements.txt", "--require-hashes", "--disable-pip")
    try:
        done = subprocess.run(
            (*argv, "--progress-spinner", "off", "--timeout", "10"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=AUDIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _not_audited(began, f"no answer within {AUDIT_SECONDS} s")
    if done.returncode == 0:
        _line("known holes", "ok", time.monotonic() - began)
        return True
    if "known vulnerabilit" in done.stderr:
        _line("known holes", "FAILED", time.monotonic() - began)
        sys.stdout.write(done.stdout)
        return False
    return _not_audited(began, (done.stderr.strip().splitlines() or ["no word"])[-1])


def _not_audited(began: float, why: str) -> bool:
    _line("known holes", f"NOT CHECKED: {why[:150]}", time.monotonic() - began)
    return True


def _line(name: str, verdict: str, seconds: float) -> None:
    sys.stdout.write(f"  {name:<12} {seconds:5.1f} s  {verdict}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
