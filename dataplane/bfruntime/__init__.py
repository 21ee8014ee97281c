"""BfRt, the interface of Tofino switches: the gRPC messages, and what their fixed tables are called.

Controller and emulator share nothing else of it, so that neither repeats the other's mistakes.
"""
