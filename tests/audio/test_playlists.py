"""A sound that is a list of other files or of addresses opens none of them, whatever it is called."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from kosmos.data.document import Media
from kosmos.errors import SampleError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.waveform import AudioProcessor


class Server:
    """Notes what is fetched from it."""

    def __enter__(self) -> Server:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *said: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("name", ["list.m3u8", "list.wav", None])
def test_a_playlist_opens_no_other_file_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    soundfile.write(tmp_path / "tone.wav", np.zeros(16_000, np.float32), 16_000)
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n"
    with Server() as server:
        port = server.server.server_address[1]
        for text in (
            "ffconcat version 1.0\nfile tone.wav\n",
            f"{head}tone.wav\n#EXT-X-ENDLIST\n",
            f"{head}http://127.0.0.1:{port}/part.ts\n#EXT-X-ENDLIST\n",
        ):
            source: bytes | Path = text.encode() if name is None else tmp_path / name
            if isinstance(source, Path):
                source.write_text(text)
            with pytest.raises(SampleError, match="audio cannot be opened"):
                AudioProcessor(AudioInput()).plan(Media("audio", source))
        assert server.asked == []
