"""Studies: a grid over any scenario keys × seeds, with means, confidence intervals, plots and claims.

A study is a TOML file. Cells are independent runs (or plans); each is kept as soon as it is done. So a study that was
interrupted goes on where it stopped, and a study that was changed computes only what is new.

    title = "Accuracy on a ring and a star"
    scenario = "ring_breast_cancer"     # a shipped name, or a file beside the study
    kind = "run"                        # or "plan": priced only, nothing is run
    seeds = 5                           # 1 … 5, or a list such as [3, 8]; a seed also deals records and draws graphs
    confidence = 0.95                   # of the intervals over the seeds
    rounds = "last"                     # or "all", or a list: at which rounds curves are kept
    measure = ["test_accuracy"]         # names to keep; left out: all
    unset = ["run.average"]             # keys to take out of the scenario before others are set
    formats = ["png", "svg", "pdf"]     # of the pictures; left out: png alone
    foot = true                         # false: without the words on n and intervals below each picture
    # width = 3.3                       # inches, for a paper; height = 1.2: of each panel

    [set]                               # for every cell; tables are merged, dotted keys need no quotes
    algorithm.rounds = 500

    [grid]                              # key = list of values, which may be tables; all combinations
    topology = [{ kind = "ring", agents = 10 }, { kind = "star", agents = 10 }, { file = "abilene" }]
    "topology.weights" = ["metropolis", "lazy_metropolis"]   # in quotes, for topology is there already

    [[variants]]                        # one more axis, "variant": named bundles of changes
    name = "certified"

    [[variants]]
    name = "without privacy"
    unset = ["privacy"]
    set = { privacy = { guarantee = "none" } }
    # scenario = "quadratic"            # another base for this variant

    [[plots]]                           # plots/NAME.png
    name = "accuracy"
    title = "What the picture shows"
    x = "topology"                      # an axis, "round", or a measured name such as "spectral_gap"
    y = "test_accuracy"                 # or several names
    lines = "variant"                   # an axis: one colour per value
    panels = "topology.weights"         # an axis: one panel per value
    where = { topology = ["ring", "star"] }   # only these values of an axis, one or a list
    log = ""                            # "x", "y" or "xy"

    [[plots]]
    name = "gap"
    x = "spectral_gap"
    y = ["consensus_y", "consensus_z"]
    points = "topology"                 # an axis whose values are written above the points, where x is measured
    where = { variant = "certified", "topology.weights" = "metropolis" }

    # [[gains]]                         # plots/NAME.png and gains.csv: differences, seed by seed, of variants that
    #                                   # differ in the algorithm alone
    # name = "pays"
    # title = "When tuning pays"
    # measure = "test_accuracy"
    # better = "higher"                 # or "lower": whether lower values are a gain
    # x = "privacy.epsilon"             # an axis of numbers
    # y = "topology.agents"             # another one: then the picture is a phase diagram, one panel a pair
    # pairs = [{ name = "LDP-DSBO", of = "tuned", over = "x fixed" }]   # names of variants

    [[claims]]                          # for all combinations of the axes that neither side fixes
    statement = "A ring loses less than a tenth"
    left = { measure = "test_accuracy", where = { variant = "certified", topology = "ring" } }
    is = "greater"                      # left > factor · right; "less": left < factor · right;
    factor = 0.9                        # "within": right / factor ≤ left ≤ factor · right
    right = { measure = "test_accuracy", where = { variant = "without privacy", topology = "ring" } }   # or a number
    # round = 100                       # in left or right: at that round instead of at the end

A value of the grid replaces what the scenario has under its key, whole tables included: a seed for "topology" belongs
into each of its tables. In set, tables are merged, but a topology, partition, stream or weights with a kind or file of
its own takes nothing over. A key that no scenario has, and one that the grid would replace again, are refused.

The values of an axis are named as they stand in the file; tables by their kind or file and by what tells them apart:
"ring", "random_regular degree 3", "dirichlet alpha 0.1".

Measured at the end of a run: its final metrics (upper_loss, test_accuracy, consensus_y, …; none if it diverged),
epsilon_max, epsilon_pure_max, claimed, rounds, spectral_gap, neighbour_weight (least |w_ii|), agents, seconds, and
diverged (0 or 1). Over rounds: all metrics. Of a plan, over rounds and at the end: epsilon_max, epsilon_pure_max and
claimed; at the end also finite_data (ε for T → ∞ on these data), endless_stream (if the stream of records never ended),
claimed_endless, rounds, spectral_gap, neighbour_weight and agents. Of both, computed for studies that ask for it alone:
network_epsilon_max, network_epsilon_mean and network_epsilon_distance_1, _2, …: the certified ε of a record towards one
other agent (`network`), of all pairs or of those so many links apart; a cell that `network` refuses is refused. Of
every cell, failed ones too: ok (0 or 1). A name that no cell can measure is refused; one that none has measured is
warned of at the end.

A claim is decided for each combination by the difference of its sides, seed by seed, with Student's interval: it
"holds" where the whole interval lies on its side, it "does not hold" where it lies on the other, and else it is
"undecided at 3 seeds". So it is at one seed, unless no seed enters: prices (a plan's ε, that of a run that ended ok)
are decided exactly. Where a side lacks a seed, since a cell failed, it is undecided too; "not measured" where nothing
was tested. Of several combinations: "holds in 2 of 3, undecided in 1". The numbers below it are those of the
combination that is least certain, with the sign that is true of its means: 218 ≥ 2 · 4.6 where "less" was claimed.

Both sides of a gain have the same problem, graph and privacy target, or it is refused; its intervals are Student's t
over the differences. A level "pays" where the interval lies above 0, "costs" where it lies below; "open": it holds 0;
"failed": a cell of either side did; "unequal ε": one side cost more than the other, so that nothing is said.

Means of scores are over the cells of a combination that ended ok; those of prices and facts (epsilon_max, claimed,
rounds, seconds, ok, diverged, …) also over those that diverged. Tables say how many of how many ended ok; pictures say
n, write 3/5 beside a mean over three of five cells, and put a cross where all failed. The interval of ok and diverged
is Wilson's for a count of cells. That of a share (an accuracy, an AUC, F1) is Student's t over the seeds on the logit
scale, which does not leave [0, 1]: agents differ, so it is no count out of a known number. Of all other means it is
Student's t over the seeds. A share that is 0 or 1 in every cell has none, nor has a single seed, unless cells are
counted.

Written to the folder: report.html (one page with everything, which loads nothing; a click on the head of a column
sorts), results.parquet (cell, seed, one column per axis, round, last, name, value), summary.parquet and summary.csv
(one row per combination and name: n, cells, failed, mean, low, high, interval; n = 0 where all cells failed),
cells.parquet (guarantee, δ, status and reason of every cell), claims.json, study.toml, plots/*.png (.svg, .pdf; those
that the study drew here before and does not draw any more, by name or by format, are removed, which is said), and
cells/, from which it goes on. Until all of it is written, begun.json says what was asked, and "decentral-dp resume
FOLDER" goes on.

A kept cell is used as long as its settings, the content of the files that its scenario names, and the sources of this
package are what they were. Where the files or the package changed, the cell is computed anew, which is said, and its
old file is removed when the new one is there. Cells of other settings (another seed, say) stay for when they are asked
for again; delete the folder to be rid of them.
"""
