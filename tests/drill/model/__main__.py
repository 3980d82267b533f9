"""``python -m tests.drill.model``: each mutant's shortest counterexample, to be read."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")


def main() -> None:
    """Print them all."""
    django.setup()
    from tests.drill.model.check import MUTANTS, without

    for mutant in MUTANTS:
        print(f"{mutant.name}:\n{without(mutant).words()}\n")


if __name__ == "__main__":
    main()
