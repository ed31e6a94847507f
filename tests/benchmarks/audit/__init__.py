"""How the audit scales: its time and memory against the number of records."""

from datetime import date

DAY = date(2026, 11, 18)
