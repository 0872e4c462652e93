"""The commands: argument handling, output and exit codes."""
