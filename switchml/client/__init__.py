"""The library that a training process uses; `switchml` has the names that are meant for users."""
