"""Questions: one file a verb, a typed question in, a frozen answer out, nothing printed.

The command line, pages, notebooks and Ray tasks all call these; `import syncline` offers them by name.
"""
