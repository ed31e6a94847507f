"""Why a group, a task or a member is where it is: reads only, and decides nothing."""
