"""The library in a plain script, with a worker process and no ``if __name__ == "__main__"``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.command import environment

SCRIPT = """
from pathlib import Path

from kosmos import Document, Media, Text, generate_text, load_run, make_run, resume_run, score, train_model
from kosmos.run_sources import open_held_out

small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
run = make_run(
    {
        "modalities": ["image"],
        "data": {"tokens_per_pack": 256, "look_ahead": 8, "workers": 1},
        "backbone": small,
        "train": {"steps": 2, "warmup_steps": 0},
        "evaluate": {"max_documents": 4},
        "output": "run",
    }
)
result = train_model(run)
assert result.step == 2 and result.before.overall.documents == result.after.by_modality["image"].documents == 4
assert resume_run(Path("run"), {"train": {"steps": 3}}).step == 3

saved = load_run(Path("run"))
assert saved.step == 3 and not saved.composition.model.training
sources = open_held_out(saved.composition.config, saved.composition.registry)
scores = score(saved.composition, sources, device=saved.device, max_documents=4, workers=1)
picture = next(s for s in sources[0].document(0).segments if isinstance(s, Media))
text = generate_text(saved.composition, Document("mine", (picture, Text("a "))), max_new_tokens=3)
print("fine", len(text) >= 0, scores.overall.documents)
"""


def test_a_plain_script_trains_goes_on_scores_and_generates(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "fine True 4\n"
