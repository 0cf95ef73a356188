"""The parts of accuracy_recipe.py: which cells there are, how one is run, what the table says."""
