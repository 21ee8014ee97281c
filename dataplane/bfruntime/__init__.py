"""BfRt, the interface of Tofino switches: the gRPC messages, and the names of their fixed tables.

Controller and emulator share nothing else of it, so that neither repeats the other's mistakes.
"""
