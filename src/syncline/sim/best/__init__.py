"""The best known schedule of a collective on a fabric: shares by a linear program, price by a pipeline formula."""
