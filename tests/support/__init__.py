"""What several test folders share: engines and servers to test against."""
