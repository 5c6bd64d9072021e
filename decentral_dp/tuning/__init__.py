"""Private tuning of the strength of a regulariser by a trusted coordinator; the call is `decentral_dp.tune`."""
