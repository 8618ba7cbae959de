"""Which back end a run gets: the best one that withstands attacks on this machine."""
