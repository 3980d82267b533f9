"""Operators in a browser, and a run to look at."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orchestrator.models import Run
from tests.api.conftest import carried, carrier, shop
from tests.desk.world import Caller

__all__ = ["carried", "carrier", "shop"]


@pytest.fixture
def boss(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def waiting(shop: Caller, carried) -> Run:
    return carried(shop.started)
