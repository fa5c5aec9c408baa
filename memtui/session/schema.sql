-- A memtui session. Times are CLOCK_MONOTONIC nanoseconds, sizes bytes, power watts, energy joules.
-- A value that could not be measured is NULL, with status and reason beside it.
-- A line that ends in "since N" is not in sessions of an older format.
-- Rows about one process in one sample have id = sample << 20 | process: one key, in the order of time.

CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID; -- values are JSON

CREATE TABLE process(
    key INTEGER PRIMARY KEY, pid INTEGER NOT NULL, parent_pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL,
    generation INTEGER NOT NULL, command TEXT NOT NULL, role TEXT NOT NULL);

CREATE TABLE sample( -- one row per sample of the whole tree
    sample INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, asked_ns INTEGER NOT NULL,
    budgeted_ns INTEGER, next_ns INTEGER, -- what a budget made of the interval asked for, and does after this sample
    paused_ns INTEGER, wss_bytes INTEGER, stored_bytes INTEGER, faulted_in_bytes INTEGER, unknown_bytes INTEGER,
    shared_bytes INTEGER, -- part of wss_bytes: what several processes touched, counted once; NULL: counted for each
    rss_bytes INTEGER, sampler_cpu_ns INTEGER NOT NULL, recorder_cpu_ns INTEGER NOT NULL, gaps INTEGER NOT NULL,
    processes INTEGER, pss_bytes INTEGER, pss_ns INTEGER, -- how many there are, their PSS, when it was read; since 10
    wss_low_bytes INTEGER, wss_high_bytes INTEGER, -- of an estimated wss_bytes: its 95 % interval; since 10
    lost_ns INTEGER, set_again_ns INTEGER, -- about how much time the target lost, part of it in page tables; since 10
    disturbed TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL);

CREATE TABLE process_sample(
    id INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, paused_ns INTEGER, walk_ns INTEGER,
    rearm_ns INTEGER, clear_gap_ns INTEGER, flush TEXT NOT NULL, rearm TEXT NOT NULL, wss_bytes INTEGER,
    stored_bytes INTEGER, faulted_in_bytes INTEGER, unknown_bytes INTEGER,
    shared_bytes INTEGER, -- part of wss_bytes: what another process of the tree touched, too; NULL: not known
    pss_bytes INTEGER, pss_ns INTEGER, pss_reason TEXT NOT NULL, -- since 10
    private_bytes INTEGER, swap_bytes INTEGER, -- at pss_ns, too: mapped by no other process; swapped out; since 15
    longest_pause_ns INTEGER, -- of those that paused_ns sums up; NULL: that is one pause; since 13
    rss_bytes INTEGER, cpu_ns INTEGER, threads INTEGER, minor_faults INTEGER, major_faults INTEGER, status TEXT NOT NULL,
    reason TEXT NOT NULL);

CREATE TABLE page_set(id INTEGER PRIMARY KEY, codec INTEGER NOT NULL, data BLOB NOT NULL); -- what filters kept
CREATE TABLE resident_set(id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- as page_set, of all resident pages, if asked for
CREATE TABLE touch_sum( -- page sets of 64 samples up to here added up, and on higher levels of 256, 1024, 4096
    level INTEGER NOT NULL, id INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX touch_sum_by_time ON touch_sum(level, id);
CREATE TABLE vma_wss(id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- i8[2, n]: vma row, touched bytes; -1: not known
CREATE TABLE vma_shared(id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- i8[2, n]: vma row, shared part of vma_wss
CREATE TABLE vma_rss(id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- i8[2, n]: vma row, resident bytes
CREATE TABLE vma_private( -- i8[2, n]: vma row, bytes that no other process maps; of the first window after a reading
    id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE reuse(id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- distances, counts and what is between of one window
CREATE TABLE reuse_checkpoint(sample INTEGER PRIMARY KEY, data BLOB NOT NULL); -- histograms of all windows up to here
CREATE TABLE reuse_burst( -- distances of the parts of a window that was cut into ever shorter ones; the last: a probe
    id INTEGER PRIMARY KEY, parts INTEGER NOT NULL, probe_ns INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE vma( -- overlap-merged over the session
    id INTEGER PRIMARY KEY, process INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, perms TEXT NOT NULL,
    name TEXT NOT NULL, first_sample INTEGER NOT NULL, last_sample INTEGER, -- NULL: mapped when this was written last
    filtered TEXT NOT NULL); -- terms of the filter that left it out in every window; empty: pages of it are stored
CREATE TABLE vma_state( -- of a row that was left out, executable, or named so in some windows only: from a sample on
    row INTEGER NOT NULL, sample INTEGER NOT NULL, perms TEXT NOT NULL, filtered TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY(row, sample)) WITHOUT ROWID;
CREATE TABLE vma_alias(id INTEGER PRIMARY KEY, row INTEGER NOT NULL); -- a row that was merged into another one

CREATE TABLE power(
    t_ns INTEGER NOT NULL, device TEXT NOT NULL, scope TEXT NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL,
    power_w REAL, energy_j REAL, limit_w REAL, memory_used_bytes INTEGER, utilization REAL,
    sm_active REAL, sm_occupancy REAL, -- of a GPU, as the next ones: means since the reading before, 0 to 1; since 11
    tensor_active REAL, dram_active REAL, -- 0 to 1; since 11
    pcie_tx_bytes_per_s REAL, pcie_rx_bytes_per_s REAL, -- from the GPU, to the GPU; since 11
    nvlink_tx_bytes_per_s REAL, nvlink_rx_bytes_per_s REAL, -- since 11
    counters_reason TEXT NOT NULL, -- why one of these is missing; since 11
    status TEXT NOT NULL, reason TEXT NOT NULL, processes INTEGER);
CREATE INDEX power_by_time ON power(t_ns);

CREATE TABLE gpu_memory( -- what a process holds on all GPUs together; holds until its next row
    t_ns INTEGER NOT NULL, process INTEGER NOT NULL, gpu_bytes INTEGER, status TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY(process, t_ns)) WITHOUT ROWID;

CREATE TABLE gpu_use( -- how busy a process kept all GPUs, 0.5 is half of one: a mean since the reading before
    t_ns INTEGER NOT NULL, process INTEGER NOT NULL, gpus_used REAL, status TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY(process, t_ns)) WITHOUT ROWID; -- a row holds until the next one of its process

CREATE TABLE memory_limit( -- of the machine ("") or of a cgroup: the one that leaves least
    t_ns INTEGER NOT NULL, cgroup TEXT NOT NULL, limit_bytes INTEGER NOT NULL, used_bytes INTEGER NOT NULL,
    reclaimable_bytes INTEGER NOT NULL, -- page cache in use
    stall_cgroup TEXT NOT NULL, some_stall_ns INTEGER, full_stall_ns INTEGER, -- how long its tasks waited for memory; since 16
    refaults INTEGER, -- pages read under it that had been in memory before; NULL: not counted; since 17
    oom_score_adj INTEGER, -- of the program; NULL: not read; since 17
    high_cgroup TEXT NOT NULL, -- whose memory.high leaves least; empty: there is none; since 18
    high_bytes INTEGER, high_used_bytes INTEGER, high_events INTEGER, -- how often tasks were above it; since 18
    swap_bytes INTEGER NOT NULL); -- what swap can take yet
CREATE INDEX memory_limit_by_time ON memory_limit(t_ns);

CREATE TABLE memory_use( -- of the tree, sums, some times a second, between windows, too
    t_ns INTEGER NOT NULL, processes INTEGER NOT NULL, rss_bytes INTEGER NOT NULL, pss_bytes INTEGER);
CREATE INDEX memory_use_by_time ON memory_use(t_ns);

CREATE TABLE numa_use( -- of touched pages that were chosen at random: how many lie on each NUMA node
    t_ns INTEGER NOT NULL, process INTEGER NOT NULL, node INTEGER NOT NULL, pages INTEGER NOT NULL,
    threads INTEGER NOT NULL, -- that ran since the row before, and last on a CPU of the node
    PRIMARY KEY(process, t_ns, node)) WITHOUT ROWID;

CREATE TABLE event(t_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX event_by_time ON event(t_ns);

CREATE TABLE allocation_step( -- every allocation of a training step, seen from inside the process
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, step INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL, start_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, -- of all that is known
    peak_op TEXT NOT NULL, peak_layer TEXT NOT NULL, peak_parts TEXT NOT NULL, -- JSON: bytes by category at the peak
    rows INTEGER NOT NULL, cost_ns INTEGER NOT NULL, dropped INTEGER NOT NULL, lost INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE TABLE tensor_ranges( -- where the lasting tensors of a process lie, until its next row
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, t_ns INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE allocation_device( -- of a recorded step that is of the memory of a GPU; others are of main memory
    id INTEGER PRIMARY KEY, device TEXT NOT NULL);
CREATE TABLE allocator_peak( -- of a recorded step on a GPU: its allocator's blocks and segments; NULL: not known
    id INTEGER PRIMARY KEY, allocated_bytes INTEGER, reserved_bytes INTEGER, reason TEXT NOT NULL);
CREATE TABLE frame( -- a call: function, file and line; "" and 0: not known
    id INTEGER PRIMARY KEY, function TEXT NOT NULL, file TEXT NOT NULL, line INTEGER NOT NULL);
CREATE TABLE call_stack( -- each once: its innermost frame, and the stack that called it; NULL: the outermost call
    id INTEGER PRIMARY KEY, parent INTEGER, frame INTEGER NOT NULL);
CREATE TABLE allocation_stack( -- of a recorded step: i8[rows], the call stack of each row; -1: not known
    id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE layer_types(pid INTEGER PRIMARY KEY, types TEXT NOT NULL); -- JSON: class of each layer, by its name
CREATE TABLE capture( -- of all allocations of a process, by memray; rows are its allocations and frees
    pid INTEGER PRIMARY KEY, rows INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    readings BLOB NOT NULL); -- of its clock: i8[2, n], time and how many rows there had been, as differences
CREATE TABLE capture_blocks( -- i8[6, n]: address, bytes, call stack, row that allocated it, rows until the one that
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, data BLOB NOT NULL); -- freed it, number of allocations it stands for
CREATE TABLE training_progress( -- training steps that ended, and what tensors held meanwhile; some a second
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, first_step INTEGER NOT NULL, steps INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, -- 0: not seen
    view TEXT NOT NULL, reason TEXT NOT NULL, cost_ns INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE driver_memory( -- of an imported log: what a driver said is free on a GPU, of all programs together
    t_ns INTEGER NOT NULL, free_bytes INTEGER NOT NULL, total_bytes INTEGER NOT NULL);
CREATE TABLE progress_device( -- whose memory a row of training_progress is of, where that is not main memory
    id INTEGER PRIMARY KEY, device TEXT NOT NULL);
CREATE TABLE learning( -- how well a process learns
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, t_ns INTEGER NOT NULL, iteration INTEGER NOT NULL,
    epoch INTEGER NOT NULL, loss REAL, accuracy REAL, minimum REAL); -- percent; NULL: not measured, none wanted
CREATE TABLE learning_about(pid INTEGER PRIMARY KEY, about TEXT NOT NULL); -- JSON: what it trains
