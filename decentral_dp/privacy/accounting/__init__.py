"""Privacy accounting: ledger entries, accountants, calibration and published theorems."""
