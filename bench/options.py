"""The command line of the bench, shared by its parent process and the measuring one."""

from __future__ import annotations

from argparse import ArgumentParser

FIGURES = (
    *("commits", "gap", "start", "throughput", "fanout", "beside"),
    *("alternating", "mixed", "parked", "timers", "standing", "history"),
    *("submission", "working"),
)
TWO_QUEUES = ("alternating", "mixed")
"""Figures that need workers of the other queue."""
WEB = ("start", "submission")
"""Figures that need the web processes."""
ROUTES = '[{"tool": "bench.other*", "to": ".other"}]'
"""The installation's rule that sends some tools to a queue of their own."""
PORT_VARIABLE = "WEB_PORT"
PLAIN_PORT_VARIABLE = "BENCH_PLAIN_WEB_PORT"
OTHER_QUEUE = "tool.other"
SHAPES = ("single", "chain", "branches", "items", "items1000")


def add_options(parser: ArgumentParser) -> None:
    """``--quick``, ``--profile`` and the names of figures."""
    parser.add_argument(
        "names", nargs="*", metavar="FIGURE", help=f"which figures: {', '.join(FIGURES)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples: a first impression")
    parser.add_argument(
        "--ours", action="store_true", help="leave plain Celery out: quicker, and no ratios"
    )
    parser.add_argument(
        "--profile", action="store_true", help="where the engine's time goes, in one thread"
    )
    parser.add_argument(
        "--shape", choices=SHAPES, default="chain", help="what the profile runs (chain)"
    )
    parser.add_argument("--runs", type=int, default=200, help="runs of the profile (200)")


def unknown_names(names: list[str]) -> list[str]:
    """The names that are no figures."""
    return [name for name in names if name not in FIGURES]
