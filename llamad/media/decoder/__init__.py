"""The process that turns files from clients into pixels and samples."""
