"""The sections of docs/options.md, and the metadata type of the options in each of them.

Pure data, read from any thread. Must not know an option.
"""

from functools import partial

from llamad.options.option import Option

PROMPT, LENGTH, SAMPLING, PENALTIES = "Prompt", "Length", "Sampling", "Penalties"
FORM, ANSWER, SPECULATION = "Structured output", "Response", "Speculation"

prompt = partial(Option, section=PROMPT)
length = partial(Option, section=LENGTH)
sampling = partial(Option, section=SAMPLING)
penalty = partial(Option, section=PENALTIES)
form = partial(Option, section=FORM, echo=False)
answer = partial(Option, section=ANSWER)
speculation = partial(Option, section=SPECULATION, echo=False)
