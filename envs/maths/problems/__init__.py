"""Problems that are made up, with exact answers; one module per kind."""
