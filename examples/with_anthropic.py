"""A streamed chat with the anthropic package: python with_anthropic.py"""

import os

import anthropic

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
client = anthropic.Anthropic(base_url=URL, api_key=os.environ.get("LLAMAD_API_KEY", "none"))

with client.messages.stream(
    model="any",
    max_tokens=64,
    system="You answer in one short sentence.",
    messages=[{"role": "user", "content": "What is the capital of France?"}],
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    usage = stream.get_final_message().usage
print(f"\n[{usage.input_tokens} tokens in, {usage.output_tokens} out]")
