"""What releases cost: charges, accountants, calibration, and theorems as they were published."""
