"""What has come in: a file for each kind of input, and what it changes in the group before the next step."""
