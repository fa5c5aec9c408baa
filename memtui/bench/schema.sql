-- What operators cost, as memtui bench measured it. Durations are nanoseconds, energy joules, power watts.
-- A value that could not be measured is NULL, with a status and a reason. Texts that say "JSON" are canonical JSON.

CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID; -- values are JSON

CREATE TABLE device(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, uuid TEXT NOT NULL,
    UNIQUE(kind, name, uuid));
CREATE TABLE environment(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE); -- JSON: versions, threads, limits

CREATE TABLE configuration(key TEXT PRIMARY KEY, op TEXT NOT NULL, text TEXT NOT NULL) WITHOUT ROWID; -- key: SHA-256 of text

CREATE TABLE run(id TEXT PRIMARY KEY, t_wall_ns INTEGER NOT NULL, host TEXT NOT NULL, plan TEXT NOT NULL, -- JSON
    idle_w REAL, idle_reason TEXT NOT NULL) WITHOUT ROWID; -- id: random

CREATE TABLE measurement( -- one row per configuration that was measured, or that failed
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, configuration TEXT NOT NULL, device INTEGER NOT NULL,
    environment INTEGER NOT NULL, t_wall_ns INTEGER NOT NULL, reference INTEGER NOT NULL, -- 1: repeated to see drift
    windows INTEGER NOT NULL, seconds REAL NOT NULL, -- as planned
    status TEXT NOT NULL, reason TEXT NOT NULL, -- ok, or failed and why
    call_ns REAL, iqr_ns REAL, -- median and interquartile range over quiet blocks of calls
    mean_ns REAL, low_ns REAL, high_ns REAL, -- mean of all calls; 95 % interval over the medians of the windows
    energy_status TEXT NOT NULL, energy_reason TEXT NOT NULL, energy_source TEXT NOT NULL, energy_scope TEXT NOT NULL,
    energy_j REAL, energy_low_j REAL, energy_high_j REAL, above_idle_j REAL, -- of a call
    power_w REAL, power_3s_w REAL, power_median_w REAL, power_verdict TEXT NOT NULL,
    estimate_j REAL, estimate_model TEXT NOT NULL, -- never a measurement
    flops INTEGER NOT NULL, moved_bytes INTEGER, walked_bytes INTEGER, copies INTEGER,
    flags TEXT NOT NULL, -- separated by blanks
    quiet REAL, -- share of the blocks in which the CPU ran at its full speed: they make call_ns, iqr_ns and the interval
    yard_limit_ns REAL, -- what the yardstick takes at most then; NULL: there was none; all blocks count
    measured_ns REAL, -- median before blocks were brought to the reference speed of the CPU
    speed REAL, follows REAL, -- of the CPU (1: the reference); share of the time that follows it (NULL: not known)
    reference_ns REAL); -- what the yardstick takes at the reference speed
CREATE INDEX measurement_configuration ON measurement(configuration, device, environment);

CREATE TABLE window(
    measurement INTEGER NOT NULL, number INTEGER NOT NULL, calls INTEGER NOT NULL, wall_ns INTEGER NOT NULL, -- in calls
    busy_ns REAL, cpu_ns INTEGER NOT NULL, block_ns BLOB NOT NULL, -- f8: duration of a call in each block
    counter_j REAL, counter_ns INTEGER, integral_j REAL, -- energy, and the time it belongs to
    reason TEXT NOT NULL, state TEXT NOT NULL, -- JSON: clocks, temperature, why the clock was held down
    yard_ns BLOB NOT NULL DEFAULT x'', -- f8: what the yardstick took beside each block; empty without one
    PRIMARY KEY(measurement, number)) WITHOUT ROWID;
