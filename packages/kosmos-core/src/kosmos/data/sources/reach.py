"""Whether the hub can be reached at all, known at once: its libraries would retry for most of a minute."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def unreachable_hub() -> str | None:
    """Why asking the hub is of no use, or None where it may answer.

    None too where its libraries are told to stay offline (they fail at once), and behind a proxy.
    """
    offline = any(os.environ.get(key, "").upper() in ("1", "ON", "YES", "TRUE") for key in _OFFLINE)
    if offline or any(os.environ.get(key) for key in _PROXIES):
        return None
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return f"{host} cannot be reached; set HF_HUB_OFFLINE=1 to use what has been downloaded"
    return None
