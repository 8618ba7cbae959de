"""The host's side: connections to runners, calls, verdicts, sandboxes kept ready."""
