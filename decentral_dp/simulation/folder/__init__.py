"""What a run leaves on disk: its layout, the journal of a run under way, states, kept releases."""
