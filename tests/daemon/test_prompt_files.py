"""--log-prompts-dir on the real program: a private file for each prompt."""

import stat
import subprocess
import sys

from support.live_daemon import Live


def test_each_prompt_has_a_file(tmp_path, tiny):
    folder = tmp_path / "new" / "prompts"
    with Live("-c", "512", "--log-prompts-dir", str(folder), model=tiny) as server:
        server.client.complete("xyzzy plugh", n_predict=1)
        server.client.post("/completion", {"prompt": ["one", "two"], "n_predict": 1})
        server.client.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "three"}], "max_tokens": 1}
        )
        assert not any("xyzzy" in line for line in server.lines)
        assert str(folder) not in server.client.get("/props").body.decode()
    files = sorted(folder.iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 4
    texts = [file.read_text() for file in files]
    assert ["xyzzy plugh" in texts[0], "one" in texts[1], "two" in texts[2], "three" in texts[3]] == [
        True
    ] * 4


def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path, tiny):
    file = tmp_path / "file"
    file.write_text("")
    command = [sys.executable, "-m", "llamad", "-m", tiny, "--port", "0", "--log-prompts-dir", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"llamad: --log-prompts-dir {file}: File exists" in done.stderr
