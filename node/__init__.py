"""One machine: frames, the row store, the state, topics and readers.  Imports nothing of ours."""
