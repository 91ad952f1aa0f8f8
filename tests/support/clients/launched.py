"""What the tests of `llamad launch` have in common: a daemon's flags, its key, and how a launch is called."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

REPLY = "Pong."
# "@" is the whole prompt, however long the chat is.
SERVED = ("-c", "65536", "-np", "1", "--chat-template", "{{ bos_token[:0] }}@", "--alias", "echo")
KEY = "a-secret-key"

Launch = Callable[..., "subprocess.CompletedProcess[str]"]
