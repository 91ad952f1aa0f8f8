#!/usr/bin/env bash
# A chat in the terminal over POST /completion, with a transcript as the prompt. Needs bash, curl and jq: bash chat.sh
set -euo pipefail

URL=${LLAMAD_URL:-http://127.0.0.1:8080}
TRANSCRIPT="A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful and \
short answers.
### Human: Hello, Assistant.
### Assistant: Hello. How may I help you today?"

# Writes the answer as it comes, and leaves it in $ANSWER.
answer() {
    local line piece
    ANSWER=""
    while IFS= read -r line; do
        if [[ $line != "data: "* ]]; then
            continue
        fi
        # The dot keeps a newline at the end of a piece, which $(...) would drop.
        piece=$(jq -j '(.error.message // .content) + "."' <<<"${line#data: }")
        piece=${piece%.}
        ANSWER+=$piece
        printf '%s' "$piece"
    done < <(jq -n --arg prompt "$1" \
        '{prompt: $prompt, stream: true, cache_prompt: true, n_predict: 256, temperature: 0.2, stop: ["\n### Human:"]}' |
        curl --silent --show-error --fail-with-body --no-buffer --data-binary @- "$URL/completion")
    printf '\n'
}

while read -r -e -p "> " QUESTION; do
    TRANSCRIPT+=$'\n'"### Human: $QUESTION"$'\n'"### Assistant:"
    printf 'Assistant:'
    answer "$TRANSCRIPT"
    TRANSCRIPT+=$ANSWER
done
