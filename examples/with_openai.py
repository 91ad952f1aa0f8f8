"""A chat of two turns with the openai package, the second one streamed: python with_openai.py"""

import os

import openai

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("LLAMAD_API_KEY", "none"))

messages = [{"role": "user", "content": "What is the capital of France?"}]
first = client.chat.completions.create(model="any", messages=messages, max_tokens=32, temperature=0)
answer = first.choices[0].message.content
print(answer)

messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]
stream = client.chat.completions.create(
    model="any",
    messages=messages,
    max_tokens=32,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage is not None:
        cached = chunk.usage.prompt_tokens_details.cached_tokens
        print(f"\n[{chunk.usage.prompt_tokens} tokens in the prompt, {cached} of them still in the cache]")
