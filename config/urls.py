"""Every address of the web process: the console, and the faces' APIs under /v1/."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.renderers import OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from config.health import healthz

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("healthz", healthz, name="healthz"),
    path("admin/", admin.site.urls),
    path(
        "v1/openapi.json",
        SpectacularJSONAPIView.as_view(renderer_classes=[OpenApiJsonRenderer2]),
        name="openapi",
    ),
    path("v1/docs/", SpectacularSwaggerView.as_view(url_name="openapi"), name="api-docs"),
    path("v1/", include("workflows_app.api.urls")),
    path("v1/", include("approvals_app.api.urls")),
]
