"""Core's own components, registered like any plugin's."""

from __future__ import annotations

from kosmos.components import API_VERSION

KOSMOS_API = API_VERSION
