"""Studies: a grid over scenario keys × seeds, with means, confidence intervals, figures and claims.

A study is a TOML file. Cells are independent runs (or plans), and each is saved when it is done. So an interrupted
study resumes, and a changed one computes only its new cells.

    title = "Accuracy on a ring and a star"
    scenario = "ring_breast_cancer"     # a shipped name, or a file next to the study
    kind = "run"                        # or "plan": accounted only, nothing is run
    seeds = 5                           # 1 … 5, or a list such as [3, 8]; a seed also draws partitions and graphs
    rounds = "last"                     # or "all", or a list: rounds at which curves are kept
    measure = ["test_accuracy"]         # measures to keep; all by default
    unset = ["run.evaluate_every"]      # keys to remove from the scenario first

    [set]                               # for every cell; tables are merged, dotted keys need no quotes
    algorithm.rounds = 500

    [grid]                              # key = list of values, which may be tables; all combinations
    topology = [{ kind = "ring", agents = 10 }, { kind = "star", agents = 10 }, { file = "abilene" }]
    "topology.weights" = ["metropolis", "lazy_metropolis"]   # in quotes, since topology is a key already

    [[variants]]                        # one more axis, "variant": named changes
    name = "certified"

    [[variants]]
    name = "without privacy"
    unset = ["privacy"]
    set = { privacy = { guarantee = "none" } }
    # scenario = "quadratic"            # another base for this variant

    [[plots]]                           # plots/NAME.svg, NAME.png, NAME.pdf and the caption, NAME.txt
    name = "accuracy"
    title = "Accuracy by graph"
    x = "topology"                      # an axis, "round", or a measure such as "spectral_gap"; with rounds = "all",
                                        # "bits" and "epsilon_spent" are followed over the rounds
    y = "test_accuracy"                 # or several measures
    lines = "variant"                   # an axis: one colour per value
    panels = "topology.weights"         # an axis: one panel per value
    where = { topology = ["ring", "star"] }   # only these values of an axis, one or a list
    log = ""                            # "x", "y" or "xy"; by default those of measures such as "optimality_gap"

    [style]                             # of all figures
    width = 3.3                         # inches
    columns = 1                         # panels side by side; 1 stacks them
    band = "quantiles"                  # median and quartiles; "sd": mean ± standard deviation; "t": Student's t
    labels = { star = "star graph", ring = { label = "ring", colour = "#0072B2" } }   # and the order of lines
    matplotlib = { font.family = "serif", font.size = 8 }

    # [[gains]]                         # plots/NAME.svg and gains.csv: differences, seed by seed, of variants that
    #                                   # differ in the algorithm, or in the topology
    # name = "pays"
    # title = "When tuning pays"
    # measure = "test_accuracy"
    # x = "privacy.epsilon"             # an axis of numbers
    # y = "topology.agents"             # a second one: a heat map, with one panel per pair
    # pairs = [{ name = "LDP-DSBO", of = "tuned", over = "x fixed" }]   # names of variants

    [[claims]]                          # for all combinations of the axes that neither side fixes
    statement = "A ring loses less than a tenth"
    left = { measure = "test_accuracy", where = { variant = "certified", topology = "ring" } }
    is = "greater"                      # left > factor · right; "less": left < factor · right;
    factor = 0.9                        # "within": right / factor ≤ left ≤ factor · right
    right = { measure = "test_accuracy", where = { variant = "without privacy", topology = "ring" } }   # or a number
    # round = 100                       # in left or right: at that round instead of at the end

A value of the grid replaces its key in the scenario, including whole tables: a seed for "topology" must be in each of
its tables. In set, tables are merged, but a topology, partition, stream or weights with its own kind or file replaces
the old table. A study is refused before any run if the grid replaces a key that is set, if a key to unset is missing,
or if all its cells are refused.

Axis values are labelled as in the file. Tables are named by their kind or file and by the keys that differ:
"ring", "random_regular degree 3", "dirichlet alpha 0.1".

"decentral-dp list measures" lists the measures. An unknown measure is refused. A measure that no cell has is a warning.

A claim is decided for each combination by its margin, seed by seed, with Student's interval over the seeds that both
sides have. It "holds" if the whole interval is above 0, "does not hold" if it is below, and is "undecided" otherwise.
One seed of a run has no interval. A plan is exact. A claim is undecided if a cell failed, so that a side lacks a seed,
and "not measured" if there are no values. The least certain combination is printed.

Both sides of a gain must have the same problem and privacy target, and the same graph or algorithm. Its intervals are
Student's t over the differences. A level "pays" if the interval is above 0 and "costs" if it is below. Other verdicts:
"open" (it contains 0), "failed" (a cell failed), and "unequal ε" (one side cost more).

Files of the folder: report.html (one page, which loads nothing), results.parquet (cell, seed, one column per axis,
round, last, name, value), summary.parquet and summary.csv (one row per combination and measure: n, cells, failed, mean,
low, high), cells.parquet (guarantee, δ, status and reason of every cell), claims.json, gains.csv, study.toml, plots/,
and cells/, from which the same study resumes.

A saved cell is used while its settings, the contents of the files of its scenario, and the sources of this package stay
unchanged. Cells of other settings also stay. Delete the folder to remove them.
"""
