# The examples of the API extensions as they are documented; test_examples.py runs each block and reads what it prints.

## save as json
curl -s -X POST "http://localhost:8080/slots/0?action=save-state" | jq .

## save as binary
curl -s -X POST "http://localhost:8080/slots/0?action=save-state" \
  -H "Accept: application/octet-stream" \
  -o slot0.ses1

## restore from binary
curl -s -X POST "http://localhost:8080/slots/0?action=restore-state" \
  -H "Content-Type: application/octet-stream" \
  --data-binary @slot0.ses1 | jq .

## restore from json
# First save state to a variable
STATE=$(curl -s -X POST "http://localhost:8080/slots/0?action=save-state" | jq -r '.state')

# Then restore to a different slot
curl -s -X POST "http://localhost:8080/slots/1?action=restore-state" \
  -H "Content-Type: application/json" \
  -d "{\"state\": \"$STATE\"}" | jq .

## tokens
curl -s -X POST "http://localhost:8080/slots/0?action=tokens" | jq .

## context shift
# Keep the first 10 tokens (system prompt), discard the next 50 (oldest conversation turns)
curl -s -X POST "http://localhost:8080/slots/0?action=context-shift" \
  -H "Content-Type: application/json" \
  -d '{
    "n_keep": 10,
    "n_discard": 50
  }' | jq .

## info
curl -s http://localhost:8080/v1/slots/0/info | jq .

## inspect then shift
# 1. Check slot state
INFO=$(curl -s http://localhost:8080/v1/slots/0/info)
echo "$INFO" | jq '{n_tokens, n_messages}'

# 2. Find where the 2nd message ends (to discard messages 1-2, keeping system prompt at index 0)
MSG2_END=$(echo "$INFO" | jq '.messages[2].end')

# 3. Keep system prompt (message 0 ends at index 13), discard up through message 2
curl -s -X POST "http://localhost:8080/slots/0?action=context-shift" \
  -H "Content-Type: application/json" \
  -d "{\"n_keep\": 14, \"n_discard\": $((MSG2_END - 13))}" | jq .

# 4. Verify
curl -s http://localhost:8080/v1/slots/0/info | jq '{n_tokens, n_messages}'

## save session
# Save slot 0 to session 42
curl -s -X POST "http://localhost:8080/sessions/42?action=save&slot=0" | jq .

## restore session
# Restore session 42 from server-side storage to slot 1
curl -s -X POST "http://localhost:8080/sessions/42?action=restore&slot=1" | jq .

## restore session from file
# Restore from file (requires --slot-save-path)
curl -s -X POST "http://localhost:8080/sessions/42?action=restore&slot=1" \
  -H "Content-Type: application/json" \
  -d '{"file": "session_42.bin"}' | jq .

## remove session
# Remove session 42 from memory
curl -s -X POST "http://localhost:8080/sessions/42?action=remove" | jq .

## remove session to file
# Save to file before removing (requires --slot-save-path)
curl -s -X POST "http://localhost:8080/sessions/42?action=remove" \
  -H "Content-Type: application/json" \
  -d '{"file": "session_42.bin"}' | jq .

## list sessions
curl -s http://localhost:8080/sessions | jq .

## conversation
# Turn 1: Initial conversation
curl -s -X POST http://localhost:8080/v1/chat/completions \
  -H "Content-Type: application/json" \
  -d '{"messages": [{"role": "user", "content": "My name is Alice."}], "id_slot": 0}' | jq .

# Save session
curl -s -X POST "http://localhost:8080/sessions/1?action=save&slot=0" | jq .

# Turn 2: Continue (restore first, then chat)
curl -s -X POST "http://localhost:8080/sessions/1?action=restore&slot=0"
curl -s -X POST http://localhost:8080/v1/chat/completions \
  -H "Content-Type: application/json" \
  -d '{"messages": [
    {"role": "user", "content": "My name is Alice."},
    {"role": "assistant", "content": "Hello Alice!"},
    {"role": "user", "content": "What is my name?"}
  ], "id_slot": 0}' | jq .

# Update session with new state
curl -s -X POST "http://localhost:8080/sessions/1?action=save&slot=0"

# Cleanup when done
curl -s -X POST "http://localhost:8080/sessions/1?action=remove"
