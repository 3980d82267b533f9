"""Who comes in, and what is said to those who do not; errors are problems whatever broke."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.views import APIView

from config.urls import urlpatterns
from orchestrator import engine
from tests.desk.documents import as_json
from tests.desk.world import TENANT, Answered, Caller, published
from workflows_app.models import ApiToken, Membership, Tenant
from workflows_app.permissions import scope_of
from workflows_app.principal import ALL_SCOPES

pytestmark = pytest.mark.django_db


def get(path: str, **headers: str) -> Answered:
    return Answered(Client(raise_request_exception=False).get(path, headers=headers))


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Bearer wf_unknown", "Bearer " + "x" * 5000, "Basic YTpi"]
)
def test_no_or_a_wrong_credential_is_401_and_says_what_is_asked(value: str) -> None:
    answer = get("/v1/workflows", **({"Authorization": value} if value else {}))

    assert answer.status == 401
    assert answer.code in ("not_authenticated", "invalid_token")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert "token" in answer.body["detail"]


def test_a_revoked_or_expired_token_is_401(shop: Caller) -> None:
    other = Caller()
    ApiToken.objects.filter(pk=shop.token.pk).revoke()
    past = timezone.now() - timedelta(seconds=1)
    ApiToken.objects.filter(pk=other.token.pk).update(expires_at=past)

    assert shop.get("/v1/workflows").code == "invalid_token"
    assert other.get("/v1/workflows").code == "invalid_token"


def test_the_secret_is_stored_nowhere(shop: Caller) -> None:
    row = ApiToken.objects.filter(pk=shop.token.pk).values().get()

    assert shop.secret not in str(row)
    assert shop.secret.startswith(row["prefix"])
    assert len(row["prefix"]) < 12


def test_use_is_noted_at_most_once_a_minute(shop: Caller) -> None:
    shop.get("/v1/workflows")
    noted = ApiToken.objects.get(pk=shop.token.pk).last_used_at
    assert noted is not None
    shop.get("/v1/workflows")
    assert ApiToken.objects.get(pk=shop.token.pk).last_used_at == noted

    earlier = noted - timedelta(minutes=2)
    ApiToken.objects.filter(pk=shop.token.pk).update(last_used_at=earlier)
    shop.get("/v1/workflows")
    assert ApiToken.objects.get(pk=shop.token.pk).last_used_at >= noted


def api_views() -> list[tuple[str, type[APIView], str]]:
    """Every route under /v1 with each method it has."""
    return [
        (f"/v1/{route.pattern}", route.callback.cls, method)
        for include in urlpatterns
        for route in getattr(include, "url_patterns", ())
        if str(include.pattern) == "v1/"
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if hasattr(route.callback.cls, method.lower())
    ]


OPEN = {"/v1/schema/workflow.json"}
ROUTES = [each for each in api_views() if each[0] not in OPEN]


def test_there_are_routes_to_check() -> None:
    assert len(ROUTES) >= 16


@pytest.mark.parametrize(("path", "view", "method"), ROUTES)
def test_every_route_is_closed_without_a_credential_and_without_its_scope(
    path: str, view: type[APIView], method: str
) -> None:
    scope = scope_of(view, method)
    assert scope in ALL_SCOPES
    url = path.replace("<str:id>", "x").replace("<str:name>", "x").replace("<int:number>", "1")
    url = url.replace("<int:id>", "1")
    url = url.replace("<uuid:approval_id>", "0192f0c0-0000-7000-8000-000000000000")
    stranger = Client(raise_request_exception=False)
    send = getattr(stranger, method.lower())
    assert send(url, content_type="application/json").status_code == 401

    weak = Caller(scopes=[each for each in ALL_SCOPES if each != scope])
    headers = {"Authorization": f"Bearer {weak.secret}", "Idempotency-Key": "k"}
    answer = Answered(send(url, content_type="application/json", headers=headers))
    assert (answer.status, answer.code) == (403, "missing_scope")
    assert str(scope) in answer.body["detail"]


# -- the console's session -------------------------------------------------------------------------


@pytest.fixture
def staff(db: None) -> User:
    user = User.objects.create_user("ann", password="p", is_staff=True)
    Membership.objects.create(
        user=user, tenant=Tenant.ensure(TENANT), scopes=["run:read", "run:start"], roles=["finance"]
    )
    return user


def browser(user: User) -> Client:
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    client.force_login(user)
    return client


def test_a_staff_session_reads_with_the_scopes_of_its_membership(staff: User) -> None:
    client = browser(staff)

    assert client.get("/v1/workflows").status_code == 200
    assert client.get("/v1/definitions").status_code == 403


def test_a_session_needs_the_csrf_token_to_write(staff: User, carrier: object) -> None:
    published()
    client = browser(staff)
    body = as_json({"input": {"order_id": "A"}})

    def start(**headers: str) -> Answered:
        return Answered(
            client.post(
                "/v1/workflows/order_check",
                body,
                content_type="application/json",
                headers={"Idempotency-Key": "k", **headers},
            )
        )

    assert (start().status, start().code) == (403, "permission_denied")
    client.get("/admin/login/")
    client.cookies["csrftoken"] = "a" * 32
    assert start(**{"X-CSRFToken": "a" * 32}).status == 201


def test_a_session_of_somebody_else_is_no_credential() -> None:
    client = browser(User.objects.create_user("visitor"))
    assert client.get("/v1/workflows").status_code == 401

    outsider = browser(User.objects.create_user("outsider", is_staff=True))
    assert Answered(outsider.get("/v1/workflows")).code == "no_membership"


def test_a_superuser_acts_in_the_only_tenant_or_the_named_one() -> None:
    Tenant.ensure("one")
    client = browser(User.objects.create_superuser("root"))
    assert client.get("/v1/workflows").status_code == 200

    Tenant.ensure("two")
    assert client.get("/v1/workflows").status_code == 403
    assert client.get("/v1/workflows", headers={"X-Tenant": "two"}).status_code == 200


# -- problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("path", ["/v1/", "/v1/nothing", "/v1/workflows/a/b/c", "/v1/docs/x"])
def test_an_unknown_address_is_a_problem_never_html(settings, path: str, debug: bool) -> None:
    settings.DEBUG = debug
    answer = get(path)

    assert (answer.status, answer.code) == (404, "not_found")


def test_a_nul_in_the_consoles_address_is_refused(client: Client) -> None:
    answer = client.get("/admin/orchestrator/run/?workflow=%00")

    assert answer.status_code == 400


def test_a_method_that_an_address_has_not_is_405(shop: Caller) -> None:
    headers = {"Authorization": f"Bearer {shop.secret}"}
    answer = Answered(shop.client.delete("/v1/workflows", headers=headers))

    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("debug", [False, True])
def test_what_nobody_expected_is_500_without_a_word_from_inside(
    settings, shop: Caller, caplog, debug: bool
) -> None:
    settings.DEBUG = debug
    run = shop.started()
    # A document that vanished: the engine says that its state contradicts itself.
    engine.compiled.cache_clear()
    type(run).objects.filter(pk=run.pk).update(compact=b"\x63")
    answer = shop.get(f"/v1/workflows/{run.id}")

    assert (answer.status, answer.code) == (500, "internal_error")
    assert "compact" not in answer.text
    assert "struct" in caplog.text or "compact" in caplog.text


def test_the_json_answers_whatever_accept_says(shop: Caller) -> None:
    headers = {"Authorization": f"Bearer {shop.secret}", "Accept": "text/html"}
    answer = Answered(shop.client.get("/v1/workflows", headers=headers))

    assert (answer.status, answer.media_type) == (200, "application/json")
