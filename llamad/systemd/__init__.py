"""What a supervisor sees of the daemon: systemd's notify protocol, the heartbeat, exit statuses."""
