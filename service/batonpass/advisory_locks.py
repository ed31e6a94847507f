"""Keys of advisory locks. Each must be unique in the database.

Old installations use these values, so they do not change.
"""

from typing import Final

MIGRATION_LOCK: Final = 7_046_029_254_386_353
UPKEEP_LOCK: Final = 7_046_029_254_386_354
SORTING_LOCK: Final = 7_046_029_254_386_355
AUDIT_LOCK: Final = 7_046_029_254_386_356
