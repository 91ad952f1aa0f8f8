"""Text to data that fits a schema, whatever the model: python json_schema.py"""

import json
import os

import requests

URL = os.environ.get("LLAMAD_URL", "http://127.0.0.1:8080")
TEXT = "Ada Lovelace, born in London in 1815, was a mathematician and writer."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
        "professions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"enum": ["mathematician", "painter", "writer"]},
        },
    },
    "required": ["name", "born", "professions"],
    "additionalProperties": False,
}

body = {
    "messages": [{"role": "user", "content": f"Who is this about? Answer in JSON.\n\n{TEXT}"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
    "max_tokens": 200,
    "temperature": 0,
}
response = requests.post(f"{URL}/v1/chat/completions", json=body, timeout=600)
response.raise_for_status()
person = json.loads(response.json()["choices"][0]["message"]["content"])
print(f"{person['name']}, born {person['born']}: {', '.join(person['professions'])}")
