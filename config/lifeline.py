"""What ties a process to the one that supervises it: dying together, and saying READY."""

from __future__ import annotations

import ctypes
import os
import signal
import socket

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent(sig: signal.Signals, *, parent: int | None = None) -> None:
    """Have the kernel send ``sig`` to this process when its parent ends, however it ends.

    ``parent`` closes the race with a parent that ended before the call: if it is given and is no
    longer the parent, the process ends now. The wish is lost by a change of account: call it after.
    """
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if parent is not None and os.getppid() != parent:
        os._exit(0)


def tell_ready() -> None:
    """Tell the supervisor that this process serves (systemd's protocol); no supervisor: nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    name = os.environ.get("STACK_PROCESS", "")
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        try:
            notify.sendto(f"READY=1\nX_PROCESS={name}\nMAINPID={os.getpid()}".encode(), target)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # The supervisor has gone; its death ends this process anyway.
