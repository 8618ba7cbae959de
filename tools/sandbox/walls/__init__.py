"""What keeps code in: launchers of this machine's back ends, and what they are made of."""
