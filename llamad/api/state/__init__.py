"""The endpoints of saved states: they move slots to blobs and files and back, keep sessions, and show slot contents."""
