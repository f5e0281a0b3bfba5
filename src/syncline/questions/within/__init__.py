"""Questions that are part of a verb: phases of a plan, volumes of a step, incidents of a watch."""
