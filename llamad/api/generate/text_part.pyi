from typing import Any

from llamad.api.generate.stream_event import TextFrame
from llamad.client.text_event import TextEvent

class TextPart:
    job: Any
    n_decoded: int
    t_first_us: int
    t_last_us: int
    frame: TextFrame | None
    held: list[TextEvent]
    def on_text(self, text: TextEvent) -> None: ...
