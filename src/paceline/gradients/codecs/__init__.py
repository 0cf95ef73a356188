"""How gradients are made smaller for their way, one file a codec, and what becomes of what is withheld."""
