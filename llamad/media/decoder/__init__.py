"""The process in which files that strangers send become pixels and samples."""
