"""What lines alone cannot say: checks in code that compare what several rules have seen."""
