"""The account that the embedded servers run under: ours, or an unprivileged one for root.

PostgreSQL refuses to run as root. The account that root steps down to keeps one capability,
CAP_DAC_OVERRIDE, so that binaries and data may lie below a folder that is closed to others.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_GET_SECUREBITS = 27
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


class AccountError(Exception):
    """No account is left to run the servers under; the message says what to do instead."""


@dataclass(frozen=True)
class Account:
    """Where a child steps down to before it runs. ``uid`` None: it stays what we are."""

    uid: int | None = None
    gid: int | None = None
    name: str = ""
    overrides_access: bool = True

    def become(self) -> None:
        """Change this process for good; call it between fork and exec."""
        if self.uid is None or self.gid is None:
            return
        if self.overrides_access:
            # Without it the change of user would drop the capability, and access(2), which initdb
            # asks about its own program, would ignore it.
            bits = _LIBC.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0)
            _prctl(_PR_SET_SECUREBITS, bits | _SECBIT_NO_SETUID_FIXUP)
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if self.overrides_access:
            _keep_access_override()

    def own(self, path: Path) -> None:
        """Give a file or folder of ours to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    @property
    def effective_uid(self) -> int:
        """The user id that the servers will have."""
        return os.geteuid() if self.uid is None else self.uid


def choose_account(data_dir: Path, probe: Path) -> Account:
    """The account for servers on ``data_dir``; ``probe`` is a program that it must be able to run.

    As an ordinary user: that user. As root: whom existing data belongs to, else the owner of the
    folder around it, else ``postgres``, else ``nobody``.
    """
    if os.geteuid() != 0:
        return Account()
    entry = _entry(data_dir)
    for overrides_access in (True, False):
        account = Account(entry.pw_uid, entry.pw_gid, entry.pw_name, overrides_access)
        if _can_run(account, probe, data_dir):
            return account
    if _may_change(Account(entry.pw_uid, entry.pw_gid, entry.pw_name, overrides_access=False)):
        return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, overrides_access=False)
    raise AccountError(
        "PostgreSQL does not run as root, and this process may not step down to the account"
        f" {entry.pw_name!r}: start it as an ordinary user, or set DATABASE_URL and BROKER_URL."
    )


def reaches(account: Account, program: Path, folder: Path) -> bool:
    """Whether the account can execute ``program`` and enter ``folder`` where they lie."""
    return account.uid is None or _can_run(account, program, folder)


def _entry(data_dir: Path) -> pwd.struct_passwd:
    owners = (path.stat().st_uid for path in (data_dir, *data_dir.parents[:2]) if path.exists())
    known = {entry.pw_uid: entry for entry in pwd.getpwall()}
    by_name = {entry.pw_name: entry for entry in known.values()}
    found = [known[uid] for uid in owners if uid != 0 and uid in known]
    found += [by_name[name] for name in ("postgres", "nobody") if name in by_name]
    if found:
        return found[0]
    raise AccountError(
        "PostgreSQL does not run as root and this machine has no account `postgres` or `nobody`:"
        " start it as an ordinary user, or set DATABASE_URL and BROKER_URL."
    )


def _can_run(account: Account, program: Path, folder: Path) -> bool:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return _succeeds(account, [str(program), "--version"], nearest)


def _may_change(account: Account) -> bool:
    return _succeeds(account, ["/bin/true"], Path("/"))


def _succeeds(account: Account, argv: list[str], folder: Path) -> bool:
    def step_down_and_enter() -> None:
        account.become()
        os.chdir(folder)
        if not os.access(argv[0], os.X_OK):
            raise PermissionError(argv[0])

    try:
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            argv, preexec_fn=step_down_and_enter, capture_output=True, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _keep_access_override() -> None:
    bit = 1 << _CAP_DAC_OVERRIDE
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack(
        "=6I", bit, bit, bit, 0, 0, 0
    )  # effective, permitted, inheritable; low, high
    if _LIBC.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)


def _prctl(option: int, *arguments: int) -> None:
    if _LIBC.prctl(option, *arguments, *[0] * (4 - len(arguments))) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
