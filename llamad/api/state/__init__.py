"""The endpoints of saved states: slots to blobs and files and back, sessions, slot contents."""
