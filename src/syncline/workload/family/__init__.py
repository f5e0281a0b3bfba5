"""Published `config.json` files as Shapes: what each family of models means by its keys, and which defaults it has.

shape = read_config("config.json")
shape.params, shape.mixers, shape.towers
"""
