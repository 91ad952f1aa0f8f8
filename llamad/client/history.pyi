from llamad.client.text_event import TextEvent

class History:
    n_cached: int
    n_drawn: int
    can_go_on: bool
    def add(self, event: TextEvent) -> None: ...
