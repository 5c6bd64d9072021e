"""The planted errors: what would make noise too small, reused or misplaced, or a price too low."""

from __future__ import annotations

from .planting import Mutation

_MECHANISMS = "tests/privacy/mechanisms/test_mechanisms.py"
_ACCOUNTANTS = "tests/privacy/accounting/test_accountants.py"
_TILTED = "tests/privacy/accounting/test_tilted_composition.py"
_POISSON = "tests/privacy/accounting/test_poisson.py"
_SLACK = "tests/privacy/accounting/test_float_slack.py"
_TRAPS = "tests/audits/test_traps.py"
_PRICES = "tests/audits/test_planned_prices.py"
_BATCH = "tests/participants/test_batch.py"
_LEDGER = "tests/privacy/test_ledger.py"
_CLIPS = "tests/problems/bilevel/test_problems_sensitivity.py"
_GRANULAR = "tests/constants/test_granular.py"
_AGAIN = "tests/simulation/test_charged_again.py::test_every_release_of_every_process_is_in_the_ledger"
_GUARDS = "tests/audits/test_guards.py"
_SALT = "tests/files/test_salt.py"
_LEAVES = "tests/simulation/test_what_leaves.py"
_NOISE = "tests/simulation/test_noise_and_records.py"

_LAW = f"{_MECHANISMS}::test_noise_has_the_declared_law_and_the_test_has_power"

MUTATIONS: tuple[Mutation, ...] = (
    # Noise ----------------------------------------------------------------------------------------------------------
    Mutation(
        "gaussian noise of half its scale",
        "privacy/mechanisms/gaussian.py",
        "    normals *= ratio\n",
        "    normals *= 0.5 * ratio\n",
        (_LAW,),
    ),
    Mutation(
        "laplace noise of nine tenths of its scale",
        "privacy/mechanisms/laplace.py",
        "    exponentials *= ratio\n",
        "    exponentials *= 0.9 * ratio\n",
        (_LAW,),
    ),
    Mutation(
        "laplace noise to one side",
        "privacy/mechanisms/laplace.py",
        "    out -= exponentials[1]\n",
        "    out += exponentials[1]\n",
        (_LAW,),
    ),
    Mutation(
        "a deviation taken for a scale",
        "privacy/mechanisms/laplace.py",
        "deviation / self.deviation",
        "deviation / 2.0",
        (_LAW,),
    ),
    Mutation(
        "noise that falls twice as fast as its schedule",
        "privacy/mechanisms/scheduled_releaser.py",
        "(t + 1.0) ** -self.decay",
        "(t + 1.0) ** (-2.0 * self.decay)",
        (f"{_MECHANISMS}::test_noise_follows_its_schedule",),
    ),
    # Keys -----------------------------------------------------------------------------------------------------------
    Mutation(
        "one noise for all rounds",
        "privacy/mechanisms/scheduled_releaser.py",
        'Draws(self._streams, index, tag(",".join(channels)), part)',
        'Draws(self._streams, 1, tag(",".join(channels)), part)',
        (f"{_MECHANISMS}::test_agents_channels_and_rounds_have_independent_noise",),
    ),
    Mutation(
        "one noise for all channels",
        "privacy/mechanisms/scheduled_releaser.py",
        'Draws(self._streams, index, tag(",".join(channels)), part)',
        'Draws(self._streams, index, tag("value"), part)',
        (f"{_MECHANISMS}::test_channels_that_are_released_one_by_one_have_independent_noise",),
    ),
    Mutation(
        "one noise for all agents",
        "privacy/randomness.py",
        'int(a).to_bytes(8, "little")',
        'int(0 * a).to_bytes(8, "little")',
        (f"{_MECHANISMS}::test_agents_channels_and_rounds_have_independent_noise",),
    ),
    Mutation(
        "a retry that draws anew",
        "privacy/keyed_draws.py",
        "self._streams.at(row, self._index, self._tag)",
        'self._streams.at(row, __import__("time").time_ns(), self._tag)',
        (f"{_MECHANISMS}::test_a_retry_repeats_the_draw_and_placement_does_not_matter",),
    ),
    Mutation(
        "one noise for two scenarios",
        "privacy/randomness.py",
        'seed.to_bytes(16, "little", signed=True), scenario)',
        'seed.to_bytes(16, "little", signed=True))',
        (f"{_MECHANISMS}::test_another_scenario_has_another_root_although_the_seed_is_the_same",),
    ),
    Mutation(
        "batches drawn from the bits of the noise",
        "privacy/randomness.py",
        "_digest(root, purpose.encode(), ",
        "_digest(root, ",
        (f"{_MECHANISMS}::test_purposes_have_streams_of_their_own",),
    ),
    Mutation(
        "noise that does not depend on the records",
        "simulation/noise_root.py",
        '"records": shards.digest.hex(),',
        '"records": "",',
        (_NOISE,),
    ),
    Mutation(
        "noise that does not depend on its scale",
        "simulation/noise_root.py",
        'exclude={"run", "title", "description", "versions", "objects"}',
        'exclude={"run", "title", "description", "versions", "objects", "privacy"}',
        (f"{_TRAPS}::test_one_seed_in_two_scenarios_gives_two_noises",),
    ),
    # Rounding -------------------------------------------------------------------------------------------------------
    Mutation(
        "laplace releases rounded to the nearest",
        "privacy/mechanisms/grid_arithmetic.py",
        "    out += uniforms < scaled\n",
        "    out += scaled > 0.5\n",
        (f"{_MECHANISMS}::test_laplace_rounds_stochastically",),
    ),
    Mutation(
        "wide gaussian releases rounded to the nearest",
        "privacy/mechanisms/gaussian.py",
        "normals, uniforms if wide else None)",
        "normals, None)",
        (f"{_MECHANISMS}::test_wide_gaussian_releases_are_rounded_by_tosses_on_a_finer_grid",),
    ),
    Mutation(
        "a grid that is no power of two",
        "privacy/mechanisms/grid_arithmetic.py",
        "np.ldexp(1.0, exponent - 1 - bits)",
        "np.ldexp(1.1, exponent - 1 - bits)",
        (f"{_MECHANISMS}::test_low_bits_do_not_depend_on_the_input",),
    ),
    Mutation(
        "a public part that is not rounded",
        "privacy/mechanisms/grid_arithmetic.py",
        "        np.rint(public, out=public)\n",
        "",
        (f"{_MECHANISMS}::test_what_is_sent_lies_on_the_grid_whatever_is_public",),
    ),
    # Prices ---------------------------------------------------------------------------------------------------------
    Mutation(
        "the laplace price without its grid",
        "privacy/mechanisms/laplace.py",
        "loss = (delta / g + width * 2.0**-52) * np.expm1(g / b)",
        "loss = delta / b",
        (f"{_ACCOUNTANTS}::test_prices_of_one_release_are_the_stated_formulas",),
    ),
    Mutation(
        "the gaussian price without its grid",
        "privacy/mechanisms/gaussian.py",
        "mu = (delta + np.sqrt(width) * g) / sd",
        "mu = delta / sd",
        (f"{_ACCOUNTANTS}::test_prices_of_one_release_are_the_stated_formulas",),
    ),
    Mutation(
        "no noise that costs nothing",
        "privacy/mechanisms/grid_arithmetic.py",
        "np.where(unbounded, np.inf, price)",
        "np.where(unbounded, 0.0, price)",
        (f"{_ACCOUNTANTS}::test_prices_at_the_edges",),
    ),
    # Slack ----------------------------------------------------------------------------------------------------------
    Mutation(
        "sums without rounding errors",
        "bounded.py",
        "1.0 + 1.01 * n * (n + dimension + 8) * 2.0**-53",
        "1.0 + 0.0 * n",
        (
            f"{_PRICES}::test_one_use_moves_by_twice_its_clip_over_the_count",
            f"{_TRAPS}::test_sums_in_float64_need_their_slack_too",
        ),
    ),
    Mutation(
        "memories without rounding errors",
        "bounded.py",
        "1.0 + 4.04 * (np.asarray(records, dtype=np.float64) + 4.0) * 2.0**-53",
        "1.0 + 0.0 * np.asarray(records, dtype=np.float64)",
        (f"{_PRICES}::test_the_slack_of_a_memory_is_the_stated_one",),
    ),
    Mutation(
        "a plan that forgets the rounding of memories",
        "algorithms/gossip/ldp_dsbo.py",
        "hidden_state(d, weight, memory_slack(public.averaged[k]))",
        "hidden_state(d, weight)",
        (f"{_PRICES}::test_plans_charge_the_rounding_of_what_is_remembered",),
    ),
    Mutation(
        "agents that forget the rounding of memories",
        "participants/agents.py",
        "s.sensitivity * memory_slack(self._stream.averaged(t, self.counts[k]))",
        "s.sensitivity",
        (f"{_BATCH}::test_a_state_that_is_kept_is_charged_for_its_rounding",),
    ),
    Mutation(
        "laplace samplers without a δ",
        "privacy/mechanisms/laplace.py",
        "1.3e-16 * (2.0 * width + np.expm1(loss))",
        "0.0 * (2.0 * width + np.expm1(loss))",
        (f"{_ACCOUNTANTS}::test_slack_of_the_samplers_is_in_the_price",),
    ),
    Mutation(
        "the samplers' δ not taken from the budget's",
        "privacy/accounting/float_slack.py",
        "np.maximum(0.0, delta - self.delta) * np.exp(-self.ratio)",
        "delta * np.exp(-self.ratio)",
        (f"{_ACCOUNTANTS}::test_slack_of_the_samplers_is_in_the_price",),
    ),
    Mutation(
        "gaussian samplers without what is far out",
        "privacy/accounting/float_slack.py",
        "        delta += far_p[0] + far_q[0] + _COIN * part.randomised\n",
        "        delta += _COIN * part.randomised\n",
        (f"{_SLACK}::test_what_is_far_out_under_either_world_is_charged",),
    ),
    # Clips ----------------------------------------------------------------------------------------------------------
    Mutation(
        "a clip that NaN passes",
        "privacy/clipping.py",
        "    return np.where(np.isfinite(norms), factor, 0.0)\n",
        "    return np.where(np.isfinite(norms), factor, 1.0)\n",
        (f"{_TRAPS}::test_the_obvious_clip_lets_nan_through",),
    ),
    Mutation(
        "a clip on one side",
        "models/linear_terms.py",
        "    factors = np.abs(coefficients)\n    factors *= norms\n",
        "    factors = np.maximum(coefficients, 0.0)\n    factors *= norms\n",
        (f"{_CLIPS}::test_adversarial_neighbours_come_near_the_bound_and_not_over_it",),
    ),
    Mutation(
        "squares that vanish in a norm",
        "models/linear_terms.py",
        '        l2 = row_norms(features / scale[:, None], "l2") * scale\n',
        '        l2 = row_norms(features, "l2")\n',
        (f"{_CLIPS}::test_a_record_with_tiny_features_and_a_huge_label_is_clipped",),
    ),
    Mutation(
        "features of any length",
        "models/linear_terms.py",
        "LARGEST_NORM = 1e250",
        "LARGEST_NORM = 1e400",
        (f"{_CLIPS}::test_features_too_large_for_float64_count_as_nothing",),
    ),
    Mutation(
        "clips down to the smallest float",
        "privacy/clipping.py",
        "if value != 0.0 and not value >= SMALLEST_CLIP:",
        "if value < 0.0:",
        (f"{_CLIPS}::test_clips_near_the_smallest_floats_are_refused",),
    ),
    Mutation(
        "denormal coefficients let through",
        "models/linear_terms.py",
        "(coefficients)\n    factors *= norms\n    np.divide(bound if bound >= SMALLEST_CLIP else 0.0,",
        "(coefficients)\n    factors *= norms\n    np.divide(bound,",
        (f"{_CLIPS}::test_the_smallest_clip_holds",),
    ),
    # Amplification --------------------------------------------------------------------------------------------------
    Mutation(
        "each channel amplified by itself",
        "privacy/accounting/composed_charges.py",
        "        total[where] += loss**power\n",
        "        total[where] = np.maximum(total[where], loss**power)\n",
        (f"{_ACCOUNTANTS}::test_a_batch_is_amplified_once_over_all_its_channels",),
    ),
    Mutation(
        "a batch that is kept, amplified as if forgotten",
        "participants/agents.py",
        "drawn = (MIXED if kept else t * _DRAWS + draw)",
        "drawn = (t * _DRAWS + draw)",
        (f"{_BATCH}::test_a_fresh_batch_is_drawn_for_every_round_and_draw_and_kept_ones_are_not_amplified",),
    ),
    Mutation(
        "a plan that amplifies what is kept",
        "algorithms/sensitivity_rules.py",
        "rate[split] = np.ones(shape) if kept else np.broadcast_to(public.rate[split], shape)",
        "rate[split] = np.broadcast_to(public.rate[split], shape)",
        (f"{_PRICES}::test_uses_add_up_kind_by_kind",),
    ),
    Mutation(
        "two batches in one value, amplified as one",
        "bounded.py",
        "            merged[split] = Sensitivity(total, np.ones_like(total), MIXED)\n",
        "            merged[split] = first._replace(sensitivity=total)\n",
        (f"{_BATCH}::test_two_fresh_batches_in_one_value_are_not_amplified",),
    ),
    Mutation(
        "a batch used twice",
        "privacy/recorder.py",
        "elif self._amplified.setdefault((split, sensitivity.batch), index) != index:",
        "elif self._amplified.setdefault((split, sensitivity.batch), index) < 0:",
        (f"{_LEDGER}::test_what_would_be_charged_too_little_is_refused",),
    ),
    Mutation(
        "two batches of one index",
        "privacy/recorder.py",
        "        ) != sensitivity.batch:\n",
        "        ) is None:\n",
        (f"{_LEDGER}::test_what_would_be_charged_too_little_is_refused",),
    ),
    Mutation(
        "a poisson sample priced for a record that is removed",
        "privacy/accounting/loss_profiles.py",
        "        second = e + np.logaddexp(out, math.log(rate) + log_ndtr(-m - tau))\n",
        "        second = e + log_ndtr(-tau)\n",
        (f"{_POISSON}::test_the_profile_is_that_of_the_pair",),
    ),
    Mutation(
        "sampling that amplifies too much",
        "privacy/accounting/loss_profiles.py",
        "small = np.log1p(eta * np.expm1(e))",
        "small = eta * e",
        (f"{_ACCOUNTANTS}::test_minibatches_of_fifty_in_six_thousand",),
    ),
    # Sensitivities --------------------------------------------------------------------------------------------------
    Mutation(
        "C for 2C",
        "algorithms/sensitivity_rules.py",
        "return 2.0 * reach / n * summation_slack(",
        "return reach / n * summation_slack(",
        (f"{_PRICES}::test_one_use_moves_by_twice_its_clip_over_the_count",),
    ),
    Mutation(
        "one record more than there are",
        "algorithms/sensitivity_rules.py",
        "return 2.0 * reach / n * summation_slack(",
        "return 2.0 * reach / (n + 1.0) * summation_slack(",
        (f"{_PRICES}::test_one_use_moves_by_twice_its_clip_over_the_count",),
    ),
    Mutation(
        "the dearest use of a release for their sum",
        "algorithms/sensitivity_rules.py",
        "            bound += step\n",
        "            bound = np.maximum(bound, step)\n",
        (f"{_PRICES}::test_uses_add_up_kind_by_kind",),
    ),
    Mutation(
        "a memory that fades too fast",
        "algorithms/sensitivity_rules.py",
        "np.where(kept[t] == 0.0, 0.0, kept[t] * now) + bound",
        "np.where(kept[t] == 0.0, 0.0, kept[t] ** 2 * now) + bound",
        (f"{_PRICES}::test_what_is_remembered_fades_as_in_a_loop",),
    ),
    Mutation(
        "an exact minimiser that is not",
        "constants/record_sensitivity.py",
        "2.0 * c.radius) + 2.0 * accuracy)",
        "2.0 * c.radius))",
        (f"{_GRANULAR}::test_minimisers",),
    ),
    # Accountants ----------------------------------------------------------------------------------------------------
    Mutation(
        "train records only",
        "privacy/accounting/accountants.py",
        "    whole = _largest([nothing, *records.values()])\n",
        '    whole = _largest([nothing, records.get("train", nothing)])\n',
        (f"{_ACCOUNTANTS}::test_a_validation_record_may_be_the_dearer_one",),
    ),
    Mutation(
        "two kinds of record priced at the rate of one",
        "privacy/accounting/charges.py",
        "if _same(c.sensitivity, kind, split) and _same(c.rate, kind, split)",
        "if _same(c.sensitivity, kind, split)",
        ("tests/privacy/accounting/test_charges.py::test_only_what_is_charged_alike_is_one_object",),
    ),
    Mutation(
        "the dearest release for the sum of all",
        "privacy/accounting/accountants.py",
        "    plain = releases.laplace.sum() + releases.pure.sum() + releases.ranged.sum()\n",
        "    plain = releases.laplace.max(initial=0.0) + releases.pure.sum() + releases.ranged.sum()\n",
        (f"{_ACCOUNTANTS}::test_very_small_delta_costs_no_more_than_what_is_proven_without_numerics",),
    ),
    Mutation(
        "one round less than there were, composed plainly",
        "privacy/accounting/loss_distributions.py",
        "parts = [power(loss, p.number, tail) for loss, p in zip(losses, pairs, strict=True)]",
        "parts = [power(loss, max(1, p.number - 1), tail) for loss, p in zip(losses, pairs, strict=True)]",
        (f"{_POISSON}::test_composed_as_dp_accounting_composes_it",),
    ),
    Mutation(
        "an eighth of the rounds left out, composed under a tilt",
        "privacy/accounting/tilted_composition.py",
        "        product *= _power(values, p.number)\n",
        "        product *= _power(values, p.number - p.number // 8)\n",
        (f"{_TILTED}::test_gaussian_releases_against_the_closed_form",),
    ),
    Mutation(
        "losses beyond the grid forgotten",
        "privacy/accounting/tilted_composition.py",
        "    left = delta - sum(p.number * p.infinite for p in parts) * mass * (1.0 + 1e-9)\n",
        "    left = delta\n",
        (f"{_TILTED}::test_losses_beyond_the_reach_are_charged_as_infinite",),
    ),
    Mutation(
        "errors of transforms not charged",
        "privacy/accounting/tilted_composition.py",
        "_read(composed + error, first,",
        "_read(composed, first,",
        (f"{_TILTED}::test_the_errors_are_charged",),
    ),
    Mutation(
        "exponential mechanisms at a quarter of their ρ",
        "privacy/accounting/accountants.py",
        "0.25 * (releases.ranged**2).sum()",
        "0.0625 * (releases.ranged**2).sum()",
        (f"{_POISSON}::test_exponential_mechanisms_cost_no_less_than_two_candidates_do",),
    ),
    Mutation(
        "an ε that is just too small",
        "privacy/accounting/accountants.py",
        "np.where(within, 0.0, high)))",
        "np.where(within, 0.0, 0.999 * high)))",
        (f"{_ACCOUNTANTS}::test_gaussian_closed_form",),
    ),
    # Ledger and plan ------------------------------------------------------------------------------------------------
    Mutation(
        "a start from data that is free",
        "privacy/recorder.py",
        "            if any((s.sensitivity > 0.0).any() for s in value.sensitivities.values()):\n",
        "            if any((s.sensitivity < 0.0).any() for s in value.sensitivities.values()):\n",
        (f"{_TRAPS}::test_a_start_from_data_is_not_free",),
    ),
    Mutation(
        "a kind of record that joins later, free for ever",
        "privacy/recorder.py",
        "0.0 if sensitivity is None else _compact(sensitivity.sensitivity)",
        "0.0 if sensitivity is None or 0.0 in column.sensitivity[split].dense() else _compact(sensitivity.sensitivity)",
        (f"{_TRAPS}::test_a_kind_of_record_that_joins_later_is_charged_from_then_on",),
    ),
    Mutation(
        "runs that may release more than was planned",
        "privacy/ledger.py",
        "if not (price <= allowed * (1.0 + rtol)).all() or",
        "if not (price <= np.inf).all() or",
        (f"{_LEDGER}::test_spending_more_than_was_planned_is_seen",),
    ),
    Mutation(
        "a status that follows what is not released",
        "simulation/run_numbers.py",
        '    elif job.scenario.privacy.guarantee != "certified" and not math.isfinite(',
        "    elif not math.isfinite(",
        ("tests/config/test_minimax_refusals.py::test_what_is_minimised_and_not_finite_is_no_ok_run",),
    ),
    Mutation(
        "groups whose weighed slopes differ by one bound, not two",
        "constants/special_families.py",
        "d_hxy=2.0 * slope * g",
        "d_hxy=slope * g",
        ("tests/constants/test_refute.py::test_no_constant_is_broken_and_many_are_reached[groups]",),
    ),
    Mutation(
        "rounding of what neighbours received left out",
        "privacy/accounting/network_rounding.py",
        "        off = own * cells[t] + reach @ step.T + computed\n",
        "        off = own * cells[t] + computed\n",
        ("tests/privacy/accounting/test_network_rounding.py::test_the_bound_by_hand",),
    ),
    Mutation(
        "a coordinator that goes on and tosses other coins",
        "engines/coordinator.py",
        'self._asked = saved["state"], saved["asked"]',
        'self._asked = saved["state"], saved["asked"] + 100',
        ("tests/simulation/test_resume.py::test_other_programs_go_on_too[dp_sgd_dual]",),
    ),
    Mutation(
        "what the end of a round sends, not charged again",
        "privacy/released_again.py",
        "c.rounds >= window.first * per_round",
        "c.rounds > window.first * per_round",
        (f"{_AGAIN}[course0-True]",),
    ),
    Mutation(
        "a second interruption that charges what the first one did",
        "simulation/interrupted_run.py",
        "            in_flight = windows[-1].first\n",
        "            in_flight = 0\n",
        (f"{_AGAIN}[course2-True]",),
    ),
    Mutation(
        "what was in flight released again and charged once",
        "simulation/charged_again.py",
        "    ledger = released_again(job.course, job.course, windows)\n",
        "    ledger = job.course\n",
        (f"{_AGAIN}[course0-True]",),
    ),
    Mutation(
        "releases of one batch amplified twice",
        "privacy/released_again.py",
        "np.where(inside[:, None], 1.0, r)",
        "np.where(inside[:, None], r, r)",
        ("tests/simulation/test_charged_again.py::test_batches_amplify_nothing_of_what_was_released_twice",),
    ),
    # Audits ---------------------------------------------------------------------------------------------------------
    Mutation(
        "an audit that takes the record for certainly drawn",
        "adversaries/sampled_releases.py",
        "    return float(np.logaddexp(np.log(rate) + with_it, np.log1p(-rate) + without))\n",
        "    return with_it\n",
        ("tests/adversaries/test_audit_samples.py::test_the_mixture_is_what_bayes_says",),
    ),
    Mutation(
        "an audit that counts what both worlds' records have in common",
        "adversaries/sampled_releases.py",
        "np.linalg.norm(one - other * (float(one @ other) / squared))",
        "np.linalg.norm(one)",
        ("tests/adversaries/test_audit_one_release.py::test_what_is_seen_along_a_line_shows_no_more_than_all",),
    ),
    Mutation(
        "an audit that takes the shorter of two moves in one direction for none",
        "adversaries/sampled_releases.py",
        "np.where(opposite, turned * u, 0.0), np.where(opposite, -turned * v, 0.0)",
        "np.maximum(turned * u, 0.0), np.maximum(-turned * v, 0.0)",
        ("tests/adversaries/test_audit_one_release.py::test_records_that_move_one_way_show_no_more_than_there_is",),
    ),
    Mutation(
        "canaries that are counted without δ",
        "adversaries/one_run_bounds.py",
        " + 2.0 * canaries * delta * slack",
        "",
        ("tests/adversaries/test_audit_one_run.py::test_the_chance_is_that_of_the_theorem_by_its_definition",),
    ),
    Mutation(
        "a recursion that counts one right guess too many",
        "adversaries/one_run_bounds.py",
        "        total += added\n        correct += (c - 1) * added / canaries\n",
        "        total += added\n        correct += c * added / canaries\n",
        (
            "tests/adversaries/test_one_run_bounds.py::test_the_recursion_finds_the_largest_tail_of_a_linear_program",
            "tests/adversaries/test_one_run_bounds.py::test_no_mechanism_exceeds_the_bound_of_its_curve",
        ),
    ),
    Mutation(
        "a recursion that forgets the coins that are not guessed",
        "adversaries/one_run_bounds.py",
        " = probability, right * probability / canaries, (guesses - right) * probability / canaries\n",
        " = probability, right * probability / guesses, (guesses - right) * probability / canaries\n",
        ("tests/adversaries/test_one_run_bounds.py::test_no_mechanism_exceeds_the_bound_of_its_curve",),
    ),
    Mutation(
        "losses of samples that are rounded up",
        "adversaries/loss_laws.py",
        "        cells = int(top / width)\n        edges = np.arange(-cells, cells + 1) * width\n",
        "        cells = int(top / width)\n        edges = np.arange(-cells, cells + 1) * width - 200.0 * width\n",
        ("tests/adversaries/test_audit_samples.py::test_the_loss_of_samples_is_that_of_the_library",),
    ),
    Mutation(
        "an agent's file whose digest nobody compares",
        "data/agent_shards.py",
        "        if digest_of_shard(path) != told.agents[agent].sha256:\n",
        "        if not told.agents[agent].sha256:\n",
        (
            "tests/simulation/test_agent_records.py::test_a_shard_that_is_not_the_manifests_is_refused",
            "tests/simulation/test_agent_records.py::test_resume_checks_the_files_again",
        ),
    ),
    Mutation(
        "a driver that is shown what agents keep to themselves",
        "engines/host.py",
        " for c, v in parts.items() if self._node.read is None}",
        " for c, v in parts.items()}",
        ("tests/simulation/test_agent_records.py::test_the_driver_sees_no_state_and_no_score",),
    ),
    Mutation(
        "a state that agents hand over to be kept",
        "engines/host.py",
        'return state if self._states is None else {"states"',
        'return state if self._states is None else state | {"states"',
        ("tests/simulation/test_agent_states.py::test_states_are_the_owners_and_the_driver_has_receipts",),
    ),
    Mutation(
        "a digest that tells whether a guess of the state is right",
        "simulation/agent_states.py",
        "os.urandom(_SALT).hex()",
        '""',
        ("tests/simulation/test_agent_states.py::test_a_digest_does_not_tell_whether_a_guess_is_right",),
    ),
    Mutation(
        "states of agents that everybody may read",
        "simulation/agent_states.py",
        "write_synced(self._path(t), content, mode=0o600)",
        "write_synced(self._path(t), content, mode=0o644)",
        ("tests/simulation/test_agent_states.py::test_states_are_the_owners_and_the_driver_has_receipts",),
    ),
    Mutation(
        "a coordinator that asks before all files were looked at",
        "engines/coordinator.py",
        '        everywhere("ready")\n',
        "        pass\n",
        ("tests/simulation/test_coordinator_shards.py::test_nothing_is_released_before_every_file_is_the_manifests",),
    ),
    Mutation(
        "secret noise that whoever has the root can draw",
        "simulation/agent_records.py",
        "    secret = s.seed is None\n",
        "    secret = False\n",
        ("tests/simulation/test_agent_records.py::test_secret_noise_takes_the_secret_beside_the_records",),
    ),
    # Solves ---------------------------------------------------------------------------------------------------------
    Mutation(
        "solutions of a path that nothing certifies",
        "participants/solution_path.py",
        "found = minimise(objective, f, y, gradient)",
        "found = y",
        ("tests/participants/test_solution_path.py::test_a_bad_factor_costs_time_only",),
    ),
    # Guards, one at a time ------------------------------------------------------------------------------------------
    Mutation(
        "published from what agents keep",
        "engines/host.py",
        "            published = {c: np.mean([v[c] for v in values], axis=0) for c in released}\n"
        "            parts = {c: getattr(self._state, c) for c in self._node.program.channels}\n",
        "            parts = {c: getattr(self._state, c) for c in self._node.program.channels}\n"
        '            published = {c: getattr(parts.get(c), "value", values[-1][c]) for c in released}\n',
        (f"{_GUARDS}::test_published_values_are_means_of_released_ones",),
    ),
    Mutation(
        "labels of a squared loss left as they are",
        "tuner_arguments.py",
        'if loss == "logistic" else np.clip(b, -label_bound, label_bound)',
        'if loss == "logistic" else b',
        (f"{_GUARDS}::test_labels_of_a_squared_loss_are_cut_at_their_bound",),
    ),
    Mutation(
        "a mean cut as a whole moved half as far",
        "participants/minimax_context.py",
        "        return 2.0 * float(summation_slack(1, width))\n",
        "        return float(summation_slack(1, width))\n",
        (f"{_GUARDS}::test_a_mean_that_is_cut_as_a_whole_may_go_through_its_ball",),
    ),
    Mutation(
        "a private point taken as a public one",
        "participants/agents.py",
        "            return np.where(still, bound, np.inf)\n",
        "            return bound\n",
        (f"{_GUARDS}::test_nothing_bounds_a_direction_at_a_private_point_without_constants",),
    ),
    Mutation(
        "a first release that no plan holds",
        "privacy/mechanisms/held_to_plan.py",
        "            if index > 0 and isinstance(value, Bounded):\n",
        "            if index > 1 and isinstance(value, Bounded):\n",
        (f"{_GUARDS}::test_the_first_release_is_held_to_its_plan",),
    ),
    Mutation(
        "no noise where one kind of record moves nothing",
        "privacy/mechanisms/planned_releaser.py",
        "                still = not any(bounds.values())\n",
        "                still = not all(bounds.values())\n",
        (f"{_GUARDS}::test_what_one_kind_of_record_moves_is_noised",),
    ),
    Mutation(
        "a negative multiple of a negative sensitivity",
        "bounded.py",
        "        return Sensitivity(s.sensitivity * abs(factor), s.rate, s.batch, s.sampling)\n"
        "    size = np.abs(np.asarray(factor, dtype=np.float64)).reshape(-1)\n",
        "        return Sensitivity(s.sensitivity * factor, s.rate, s.batch, s.sampling)\n"
        "    size = np.asarray(factor, dtype=np.float64).reshape(-1)\n",
        (f"{_GUARDS}::test_a_negative_multiple_moves_as_far_as_a_positive_one",),
    ),
    Mutation(
        "a Poisson sample rounded once",
        "privacy/accounting/charges.py",
        '    parts = 2.0 if c.sampling == "poisson" else 1.0\n',
        "    parts = 1.0\n",
        (f"{_GUARDS}::test_a_poisson_sample_is_rounded_twice",),
    ),
    Mutation(
        "a longer run that is another one",
        "simulation/run_extension.py",
        "    if not _is_same_so_far(current, longer, found.leased):\n",
        "    if not isinstance(longer, GossipJob):\n",
        (f"{_GUARDS}::test_a_longer_run_that_would_have_released_otherwise_is_refused",),
    ),
    Mutation(
        "a change that rounding does not move",
        "participants/coordinator_context.py",
        "np.linalg.norm(query.y - query.along)) / n) + rounding\n",
        "np.linalg.norm(query.y - query.along)) / n)\n",
        (
            "tests/algorithms/coordinator_bilevel/test_dp_bilevel_neighbours.py"
            "::test_a_distance_of_zero_leaves_what_rounding_moves",
        ),
    ),
    Mutation(
        "states of a run that everybody may read",
        "simulation/run_in_progress.py",
        'f"saved-{number}.npz", content, OWNERS)',
        'f"saved-{number}.npz", content)',
        ("tests/simulation/test_resume.py::test_what_is_not_noised_is_the_owners",),
    ),
    Mutation(
        "a digest of private files without its salt",
        "config/input_digest.py",
        'key=salt if inputs else b""',
        'key=b""',
        (f"{_SALT}::test_no_file_of_a_study_shows_which_guess_is_true",),
    ),
    Mutation(
        "a pickle with the objects that a scenario was given",
        "privacy/secret.py",
        "        return Secret, (self.name,)\n",
        "        return Secret, (self.name, *(held for held in self._held if isinstance(held, dict)))\n",
        (f"{_LEAVES}::test_no_record_and_no_root_leave_with_a_run_or_a_plan",),
    ),
)
