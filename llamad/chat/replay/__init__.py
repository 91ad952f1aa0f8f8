"""Faithful replay: an assistant turn that comes back has the tokens with which the server generated it.

Pure, any thread. It knows tokens only as bytes, and neither HTTP nor the engine. A client sends a turn back in its own
words: it may drop the reasoning, trim white space, or write the arguments of calls in another way. So a turn is
recognized by its meaning (meaning.py) and by the conversation before it (memory.py). The template renders what the
model generated, and where that stands in the rendered text, the original tokens take its place (spans.py).
"""
