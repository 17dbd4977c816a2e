"""Long cases, of which a short variant is in the suite: ``nox -s thorough`` takes them."""

from __future__ import annotations

import os

import pytest

ASKED = "KOSMOS_TEST_THOROUGH" in os.environ
thorough = pytest.mark.skipif(not ASKED, reason="long: nox -s thorough")
