"""The schemas of the store, each as the migration from the previous one."""

from __future__ import annotations

__all__ = ["MIGRATIONS"]

# The first n of these make schema n; PRAGMA user_version is the schema of a file.
MIGRATIONS = (
    """
    CREATE TABLE jobs (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        workers INTEGER NOT NULL,
        switch TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        slot_base INTEGER NOT NULL,
        slots INTEGER NOT NULL,
        values_per_packet INTEGER NOT NULL,
        created REAL NOT NULL,
        state INTEGER NOT NULL,
        failure TEXT NOT NULL,
        ended REAL NOT NULL
    );
    CREATE INDEX jobs_by_id ON jobs (id);
    CREATE INDEX jobs_by_name ON jobs (name);
    CREATE INDEX jobs_by_state ON jobs (state);
    CREATE TABLE ranks (
        job INTEGER NOT NULL REFERENCES jobs (key),
        rank INTEGER NOT NULL,
        agent TEXT NOT NULL,
        instance TEXT NOT NULL,
        host TEXT NOT NULL,
        socket TEXT NOT NULL,
        switch_port INTEGER NOT NULL,
        mac TEXT NOT NULL,
        state INTEGER NOT NULL,
        address TEXT NOT NULL,
        udp_port INTEGER NOT NULL,
        position INTEGER NOT NULL,
        exit_code INTEGER,
        counters BLOB NOT NULL,
        PRIMARY KEY (job, rank)
    ) WITHOUT ROWID;
    CREATE TABLE transitions (
        job INTEGER NOT NULL REFERENCES jobs (key),
        from_state INTEGER,
        to_state INTEGER NOT NULL,
        reason TEXT NOT NULL,
        time REAL NOT NULL
    );
    CREATE INDEX transitions_by_job ON transitions (job);
    CREATE TABLE counters (
        job INTEGER NOT NULL REFERENCES jobs (key),
        name TEXT NOT NULL,
        packets INTEGER NOT NULL,
        PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
    CREATE TABLE epochs (
        switch TEXT PRIMARY KEY,
        last INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        level TEXT NOT NULL,
        job_key INTEGER NOT NULL,
        job INTEGER NOT NULL,
        job_name TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        rank INTEGER,
        agent TEXT NOT NULL,
        switch TEXT NOT NULL,
        actor TEXT NOT NULL,
        detail TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE jobs ADD COLUMN on_failure INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN changing INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE ranks ADD COLUMN worker INTEGER NOT NULL DEFAULT 0;
    UPDATE ranks SET worker = rank;
    CREATE TABLE epoch_changes (
        job INTEGER NOT NULL REFERENCES jobs (key),
        epoch INTEGER NOT NULL,
        workers INTEGER NOT NULL,
        lost TEXT NOT NULL,
        joined TEXT NOT NULL,
        reason TEXT NOT NULL,
        time REAL NOT NULL
    );
    CREATE INDEX epoch_changes_by_job ON epoch_changes (job);
    CREATE TABLE drained_switches (
        switch TEXT PRIMARY KEY
    ) WITHOUT ROWID;
    CREATE TABLE leadership (
        term INTEGER NOT NULL
    );
    INSERT INTO leadership VALUES (0);
    """,
    """
    ALTER TABLE jobs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
    CREATE TABLE configuration (
        content TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE jobs ADD COLUMN secret INTEGER NOT NULL DEFAULT 0;
    """,
    """
    UPDATE jobs SET on_failure = on_failure + 1;
    """,
    """
    CREATE TABLE job_switches (
        job INTEGER NOT NULL REFERENCES jobs (key),
        position INTEGER NOT NULL,
        switch TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        slot_base INTEGER NOT NULL,
        slots INTEGER NOT NULL,
        multicast_group INTEGER NOT NULL,
        upstream TEXT NOT NULL,
        PRIMARY KEY (job, position)
    ) WITHOUT ROWID;
    CREATE INDEX job_switches_by_switch ON job_switches (switch);
    INSERT INTO job_switches SELECT key, 0, switch, epoch, slot_base, slots, id, '' FROM jobs;
    ALTER TABLE ranks ADD COLUMN switch TEXT NOT NULL DEFAULT '';
    UPDATE ranks SET switch = (SELECT switch FROM jobs WHERE key = ranks.job);
    CREATE TABLE jobs_without_switch (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        workers INTEGER NOT NULL,
        values_per_packet INTEGER NOT NULL,
        created REAL NOT NULL,
        state INTEGER NOT NULL,
        failure TEXT NOT NULL,
        ended REAL NOT NULL,
        on_failure INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        changing INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        secret INTEGER NOT NULL
    );
    INSERT INTO jobs_without_switch
        SELECT key, id, name, workers, values_per_packet, created, state, failure, ended, on_failure, generation,
            changing, tenant, secret
        FROM jobs;
    DROP TABLE jobs;
    ALTER TABLE jobs_without_switch RENAME TO jobs;
    CREATE INDEX jobs_by_id ON jobs (id);
    CREATE INDEX jobs_by_name ON jobs (name);
    CREATE INDEX jobs_by_state ON jobs (state);
    """,
    """
    ALTER TABLE jobs RENAME COLUMN changing TO in_transition;
    """,
    """
    ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
    """,
    """
    CREATE TABLE epochs_of_tenants (
        switch TEXT NOT NULL,
        tenant TEXT NOT NULL,
        used INTEGER NOT NULL,
        PRIMARY KEY (switch, tenant)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE epochs ADD COLUMN nonce INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE epochs ADD COLUMN next_nonce INTEGER NOT NULL DEFAULT 0;
    """,
    # Agents are known by ORGANIZATION/NAME; those of a tenant's job are taken for its own, as shared ones are rare.
    """
    UPDATE ranks SET agent = (SELECT tenant FROM jobs WHERE key = job) || '/' || agent
        WHERE job IN (SELECT key FROM jobs WHERE tenant != '' AND state <= 3);
    """,
)
