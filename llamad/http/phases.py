"""Owns the names of a connection's phases. Only connection.pyx changes a phase.

A request runs IDLE -> HEAD -> BODY -> ANSWER -> IDLE, leaving out what it does not need.
The order of the numbers counts: up to HEAD a new request may begin, from ENDING on none will."""

from __future__ import annotations

IDLE = 0  # between requests
HEAD = 1  # a head has begun and is not complete
BODY = 2  # the head was accepted, the body is coming
ANSWER = 3  # the application has the request; bytes that arrive now wait in the stash
SKIP = 4  # answered without the body, which is read past to reach the next request
ENDING = 5  # answered for the last time while _consume() runs, which will see whether bytes are left
LINGER = 6  # answered for the last time; what still arrives is dropped until the client closes
CLOSED = 7
