"""What would become of a group, without anything being done: snapshots, plans and what-ifs."""
