#!/bin/sh
# smg (PyPI) in front of several llamads with the same model: conversations stay on the machine that has their cache.
#     deploy/smg/run.sh --host 0.0.0.0 --port 8000 --worker-urls http://10.0.0.1:8080 http://10.0.0.2:8080
# Start each llamad with --host and --alias; clients name that alias as their model.
# Clients' keys are passed on. smg's own --api-key would check clients itself, with one key for all.

# Whoever has SMG_ADMIN_KEY may add and remove servers, and so read what all clients say; without it nobody may.
admin_key=${SMG_ADMIN_KEY:-$(head -c 24 /dev/urandom | base64)}

# A prompt of which 30 % were seen goes where that was, any other to the least busy machine. While any two machines are
# more than 32 requests apart, every prompt does: the more machines, the larger this must be (docs/scale.md). A machine
# that leaves is noticed within a second, and what it refuses tried elsewhere.
exec smg launch \
    --policy cache_aware \
    --cache-threshold 0.3 \
    --cache-ttl-secs 7200 \
    --balance-abs-threshold 32 \
    --health-check-interval-secs 1 \
    --health-failure-threshold 1 \
    --health-success-threshold 1 \
    --worker-startup-check-interval 1 \
    --cb-failure-threshold 2 \
    --cb-timeout-duration-secs 5 \
    --retry-max-retries 5 \
    --retry-initial-backoff-ms 20 \
    --request-timeout-secs 3600 \
    --control-plane-api-keys "admin:admin:admin:$admin_key" \
    "$@"
