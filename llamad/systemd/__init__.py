"""The daemon's interface to a supervisor: systemd's notify protocol, the heartbeat, exit statuses."""
