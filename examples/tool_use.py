"""The model calls a function of this program, and answers with its result: python tool_use.py

`tool_choice` makes the model call it: small ones often do not. The arguments always fit the function's schema.
"""

import json
import os

import openai

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("LLAMAD_API_KEY", "none"))


def get_temperature(city, unit):
    """What would ask a weather service."""
    celsius = {"Paris": 21, "Rome": 27}.get(city, 18)
    return celsius if unit == "celsius" else celsius * 9 // 5 + 32


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_temperature",
            "description": "The temperature in a city right now",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
            },
        },
    }
]

messages = [{"role": "user", "content": "How warm is it in Paris, in celsius?"}]
reply = client.chat.completions.create(
    model="any", messages=messages, tools=TOOLS, tool_choice="required", max_tokens=128, temperature=0
)
message = reply.choices[0].message
messages.append(message.model_dump(exclude_none=True))
for call in message.tool_calls:
    arguments = json.loads(call.function.arguments)
    result = get_temperature(**arguments)
    print(f"call: {call.function.name}({arguments}) -> {result}")
    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})

final = client.chat.completions.create(model="any", messages=messages, max_tokens=64, temperature=0)
print(f"answer: {final.choices[0].message.content}")
