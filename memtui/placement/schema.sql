-- A placement profile: what was measured of a graph, and the plans made from it. Durations are nanoseconds.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID; -- JSON: graph, pools, resolution_ns, about
CREATE TABLE sample( -- a row for each op and configuration of each round that was measured
    id INTEGER PRIMARY KEY, op TEXT NOT NULL, configuration TEXT NOT NULL, -- JSON
    mode TEXT NOT NULL, time_ns BLOB NOT NULL, run BLOB NOT NULL); -- f8, i8: as many numbers in the one as in the other
CREATE TABLE plan( -- the newest for each
    formulation TEXT NOT NULL, slow TEXT NOT NULL, mode TEXT NOT NULL, limit_bytes INTEGER NOT NULL,
    t_wall_ns INTEGER NOT NULL, text TEXT NOT NULL, -- JSON
    PRIMARY KEY(formulation, slow, mode, limit_bytes)) WITHOUT ROWID;
CREATE TABLE curve(
    formulation TEXT NOT NULL, slow TEXT NOT NULL, mode TEXT NOT NULL, t_wall_ns INTEGER NOT NULL,
    text TEXT NOT NULL, -- JSON
    PRIMARY KEY(formulation, slow, mode)) WITHOUT ROWID;
