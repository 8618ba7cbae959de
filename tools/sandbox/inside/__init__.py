"""What runs inside a sandbox: standard library only, sent in as code, never installed there."""
