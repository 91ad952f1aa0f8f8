"""The exit statuses of the daemon, on which a supervisor acts; docs/operations.md says what to do for each.

Except for 1 and 2 they are those of sysexits.h, which `systemctl status` shows by name; 200 and above are systemd's.
"""

OK = 0  # stopped by a signal
# The model that the command line names cannot be served (no such file, not GGUF, download failed), or a second signal
# came, or there is a bug.
FAILED = 1
WRONG_FLAGS = 2  # INVALIDARGUMENT: the same command line will fail again
LOAD_FAILED = 65  # DATAERR: the model was opened, but never served
ENGINE_GIVEN_UP = 70  # SOFTWARE: the model has served, but its engine is not restarted any more
LISTEN_FAILED = 71  # OSERR: an address is in use or not local, or an inherited socket is of the wrong kind
