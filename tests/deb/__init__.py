"""The Debian package, installed in a fresh Debian."""
