"""Studies: a grid over any scenario keys × seeds, with means, confidence intervals, plots and claims.

A study is a TOML file. Cells are independent runs (or plans); each is kept as soon as it is done. So a study that was
interrupted goes on where it stopped, and a study that was changed computes only what is new.

    title = "Accuracy on a ring and a star"
    scenario = "ring_breast_cancer"     # a shipped name, or a file beside the study
    kind = "run"                        # or "plan": priced only, nothing is run
    seeds = 5                           # 1 … 5, or a list such as [3, 8]; a seed also deals records and draws graphs
    rounds = "last"                     # or "all", or a list: at which rounds curves are kept
    measure = ["test_accuracy"]         # names to keep; left out: all
    unset = ["run.evaluate_every"]      # keys to take out of the scenario before others are set

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

    # [[gains]]                         # plots/NAME.png and gains.csv: differences, seed by seed, of variants that
    #                                   # differ in the algorithm, or in the topology
    # name = "pays"
    # title = "When tuning pays"
    # measure = "test_accuracy"
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
its own takes nothing over. A key that the grid would replace again, one to unset that is not there, and a study whose
cells are all refused, are refused before anything is run.

The values of an axis are named as they stand in the file; tables by their kind or file and by what tells them apart:
"ring", "random_regular degree 3", "dirichlet alpha 0.1".

Measured names are listed by "decentral-dp list measures". A name that no cell can measure is refused, and one that none
has measured is warned of at the end.

A claim is decided for each combination by its margin, seed by seed, with Student's interval over the seeds that both
sides have: it "holds" where the whole interval lies above 0, it "does not hold" where it lies below, and else it is
"undecided". One seed of a run has no interval. A plan is exact. A claim is undecided where a cell failed, so that a
side lacks a seed, and "not measured" where nothing was compared. The printed combination is the least certain one.

Both sides of a gain have the same problem and privacy target, and the same graph or algorithm, or it is refused. Its
intervals are Student's t over the differences. A level "pays" where the interval lies above 0, "costs" where it lies
below; "open": it holds 0; "failed": a cell of either side did; "unequal ε": one side cost more than the other, so that
nothing is said.

Written to the folder: report.html (one page, which loads nothing), results.parquet (cell, seed, one column per axis,
round, last, name, value), summary.parquet and summary.csv (one row per combination and name: n, cells, failed, mean,
low, high), cells.parquet (guarantee, δ, status and reason of every cell), claims.json, gains.csv, study.toml,
plots/, and cells/, from which the same study resumes.

A kept cell is used as long as its settings, the content of the files that its scenario names, and the sources of this
package are what they were. Cells of other settings stay; delete the folder to be rid of them.
"""
