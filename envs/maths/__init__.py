"""Mathematics with verified answers."""
