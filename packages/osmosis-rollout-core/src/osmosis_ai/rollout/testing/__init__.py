"""Real endpoints on loopback for tests of workflows and servers."""
