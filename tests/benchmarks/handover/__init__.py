"""How long a task is silent when it is handed over warm, step by step, on real processes and a real broker."""
