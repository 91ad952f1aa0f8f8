#!/usr/bin/env bash
# The usual requests with curl; jq picks the interesting part. Run with bash curl.sh
set -euo pipefail

URL=${LLAMAD_URL:-http://127.0.0.1:8080}

echo "Is it ready?"
curl -s "$URL/health" | jq -r .status

echo "A completion:"
curl -s "$URL/completion" -d '{"prompt": "The capital of France is", "n_predict": 8, "temperature": 0}' | jq .content

echo "A chat:"
curl -s "$URL/v1/chat/completions" -d '{
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 32, "temperature": 0}' | jq -r '.choices[0].message.content'

echo "The same, as it is written:"
curl -sN "$URL/v1/chat/completions" -d '{
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 32, "temperature": 0, "stream": true}' |
    sed -un 's/^data: {/{/p' | jq --unbuffered -j '.choices[0].delta.content // empty'
echo

echo "How many tokens is that?"
curl -s "$URL/tokenize" -d '{"content": "What is the capital of France?"}' | jq '.tokens | length'
