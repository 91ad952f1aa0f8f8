"""The measurements on a machine with a GPU and no network: `bench/gpu build|model|run`. README.md explains them."""
