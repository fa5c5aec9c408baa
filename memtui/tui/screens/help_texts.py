"""Help of the screens with their own keys: a title, the keys and the terms."""

ALONE = {
    "verdict": """\
Verdict                                 at the cursor, from the ten minutes before it
  up  down      scroll; pageup and pagedown by the screenful
  left  right   the verdict one sample before or after
  space         pause or play; end or l: live
  Esc  v  q     back

  Findings are at most three, what matters most first: each with what to do next and the figures that say so. Below is
  what was looked at, with what came out, and what could not be known, with the reason. The finding that matters most is
  the first sentence of the memory screen, and all of them are in memtui report. docs/guide/verdicts.md has every rule
  with its thresholds.
""",
    "comparison": """\
Sessions over one another               of memtui compare; A is the one that others have more or less than
  Tab           memory of the programs, or their trainings, where there are both
  x             seconds since each session began, or its share; of trainings iterations or seconds
  m             below: RSS or VM; of trainings one recorded iteration, or all of them
  r             touches that a memory holds for sure (LRU), or those that it misses at most
  i             windows of one length, where theirs differ: neighbours are merged. That is known of stored pages of the
                process with the most of them, so both sides are of that process alone.
  d             the figures of each, or a line for each figure and condition that differs; left and right go
                through the sessions where not all have room
  n             the next note, or the rest of one: what is to be known before they are compared
  c  q          other colours; leave
  WSS and RSS are medians over windows; reuse 95 %: within so much memory 95 % of returning touches came back; knee:
  where the curve of touches bends, n/a where it has no clear one. Figures of windows of different lengths are not held
  against each other.

Words
  working set   memory touched within one window (the interval), in the pages the hardware maps
  resident      memory the kernel keeps for the target (RSS), touched or not; >5 MiB: at least so much
  reuse         distance: how much other memory was touched since a page was touched last; between two bounds,
                because the order inside a window is not known: a shorter interval brings them closer;
                about: an estimate between them, right where that order is random
  miss ratio    share of touches that a memory of that size, keeping what was used last, would miss
""",
    "placement": """\
Which memory each tensor should live in   of memtui place: every op of a training step, with its tensors in each memory
  1 2 3 4  Tab  matrix, timings, plan, curve; shift+Tab goes back
  c  q          other colours; leave. Where this screen began to measure, that ends with it; the same command goes on.
  The line under these names says how far a profile is: that of this command, or one that others measure.

Matrix                                  a row for each op, a cell for each configuration: where its tensors lie
  up  down      an op; pageup and pagedown by the screenful; left and right: a configuration
  Enter         every time of that cell; Esc goes back
  m             another way of timing, where there are several
  s             another slow pool, where there are several
  A cell is how many times as long the op takes as with all in fast memory, warmer where it is longer. Below stand the
  configuration, inputs -- outputs, and its times.

Timings                                 two ways of timing against each other, both axes logarithmic
  up  down      the next slower, the next faster pair
  m             two other ways, where there are three
  Points above the line take longer the way that is asked about (up) than the way that is the reference (across). The
  verdict is that of memtui place compare; log r says how well the logarithms of the times correlate.

Plan                                    what memtui place solve found: where each tensor is while each op runs
  arrows        a tensor and an op
  n             the next plan, where several are kept; the newest is first
  Above is what lies in fast memory at once, under its limit; triangles are moves.

Curve                                   of memtui place solve --pareto: time of a step by the limit of fast memory
  left  right   a limit that was solved
  n             the next curve, where several are kept

Words
  isolated      the op is timed by itself; single: in the whole step, with one configuration at a time; simultaneous:
                there, with as many as are far enough from each other
  configuration where each input and output of an op lies: (dram, slow) -- (dram)
  free          what has a choice is memory that the step makes and does not return; the rest stays in fast memory
  static        tensors stay where they were made; sync: they are moved between ops; async: also during them
  first touch   the baseline: tensors go where there is room when they are made, and stay
  gap           no plan of that kind is faster by more than that
  emulated      fast memory with waits in it: it checks the solver, and tells nothing of a machine
""",
    "grid": """\
Runs of a grid of trainings             of memtui tune, those that run now and those of a folder
  up  down      a run; pageup and pagedown by the screenful; home: the first; end: the one that goes on
  Enter         what it printed; Tab: its other file, what it complained of and how far it is; Esc goes back
  s  S          sort by the next column; turn the order round
  c  q          other colours; leave. Where this screen runs the grid, it ends with it; the same command goes on later.

Words
  accuracy      percent, as it was measured last; loss: the last one
  peak          the most memory that its tensors took at once, in a recorded iteration
  above         the peak above what they took when that iteration started: what learning needs besides the network
  left          until the last run ends, as the runs until now let expect
  stopped early before the last epoch: the line below says why
  interrupted   a run that was ended from outside: it runs again when the grid goes on
""",
    "bench": """\
What an operator costs                  of memtui bench: the configurations that are finished, and the one that goes on
  up  down      a finished configuration; pageup and pagedown by the screenful; end: the newest, and follow them
  q             end: finished rows stay, and the same command goes on later
  Grey rows (ref) are the reference, which is repeated to see drift; rows of another colour are flagged, and the lines
  below say why.

Words
  idle          the device rests, and what it draws then is taken off
  data          inputs are made; warm-up: the operator runs until its time is steady
  window        the operator runs again and again for a few seconds, and is measured; there are several of them
  time          of a call: the median; +-: half of its 95 % interval over the windows; IQR: from the lower to the upper
                quartile, both in percent of the time
  J/call        mean power of a window times the mean time of a call in it; ~ is an estimate from watts you assumed
  W over 1 s    what the device drew in the last second, from its counter; the picture has the seconds before
""",
}
