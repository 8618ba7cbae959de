"""The bundled problems: one module per kind and level."""
