"""Names and ranges of options, for the command line and for the modules that check or use them.

This module imports nothing, so that a help text costs nothing.
"""

TRACKERS = ("auto", "pagetable", "idle", "damon", "referenced", "rss")
ESTIMATES = ("damon",)  # trackers that estimate, which their label says
FLUSHES = ("auto", "cold", "soft-dirty", "off")
PAGES = ("exact", "sampled")
REARMS = ("auto", "working-set", "full")
INTERVAL_NS = 10**6, 3_600 * 10**9  # 1 ms to 1 h
DEFAULT_OVERHEAD_PPM = 10_000
MAX_OVERHEAD_PPM = 100, 10**6  # parts per million of the time: 0.01 % to 100 %
DEFAULT_MAX_PAUSE_NS = 100 * 10**6
MAX_PAUSE_NS = 5 * 10**6, 5 * 10**9  # 5 ms to 5 s
DURATION_NS = 10**6, 3_660 * 86_400 * 10**9  # 1 ms to ten years
THEMES = ("dark", "light", "high-contrast")
COLORS = ("auto", "truecolor", "256", "16", "none")
LETTERS = "ABCDEFGH"  # of compared sessions: more lines cannot be distinguished
COMMAND_CHARACTERS = 1 << 14  # of a command line that are stored, for people to read
MARK_CHARACTERS = 500  # of one mark on the time axis
LEAST_MAX_BYTES = 16 << 20  # of a session file; SQLite's log next to it may take half of that
DEFAULT_MAX_BYTES = 2 << 30
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")  # of the numbers that a measured operator works on
MODES = ("forward", "forward-backward")  # its passes
CACHE_STATES = ("cold", "warm")  # whether its inputs lie in the cache
WEIGHT_SETS = ("rotate", "same")  # several sets of weights in rotation, or one
SPACES = ("small", "resnet50", "thesis", "sparsity", "predict")  # bundled sets of configurations
LEARNING_RULES = ("BP", "FA", "DFA", "DFAMEM")
BUNDLED_NETWORKS = (
    *("fcReLu", "fcSigmoid", "long_fc", "long_fc2", "long_conv"),
    *("liao_mnist", "liao_mnist_bn", "liao_cifar", "liao_cifar_bn", "vgg_16"),
    *("resnet_18", "resnet_34", "resnet_50", "resnet_101", "resnet_152"),
)  # that memtui train knows
IMPORT_FORMATS = (
    "mxnet",
    "analysis",
    "zpp",
    "chrome",
    "timeline",
    "snapshot",
    "memray",
    "memray-report",
)  # of files of other tools
RULES = ("memtui", "layers", "compat")  # by which memory is broken down; each is a file of ``formats/rules``
ENGINES = ("submitit",)  # what runs the parts of a sweep
PLACE = ("profile", "compare", "solve", "show")  # what memtui place does
TIMINGS = ("isolated", "single", "simultaneous")  # how an op is timed: alone, in its graph, there with others
FORMULATIONS = ("static", "sync", "async", "first-touch")  # of a placement
MOST_SEED = 2**63 - 1  # of random numbers
STEPS_APART = 20  # from a training step whose allocations are recorded to the next


def tracker_label(tracker: str) -> str:
    """Return the name of a tracker for people."""
    return f"{tracker} (estimate)" if tracker in ESTIMATES else tracker
