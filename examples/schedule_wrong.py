"""A ring that adds one chunk twice delivers everything, and is refused."""

from dataclasses import replace

from syncline.errors import NotProvedError
from syncline.schedule import Schedule, Strand, ring, verify
from syncline.schedule.kernel import whole

right = ring(6)
kernel = right.strands[0].stages[0].kernel
scatter, gather = kernel.rounds
twice = replace(kernel, name="ring that begins twice", rounds=(replace(scatter, repeat=1), scatter, gather))
print("right:", verify(right).method)
try:
    verify(Schedule("wrong", right.collective, (Strand((whole(twice),), twice.num_chunks),)))
except NotProvedError as error:
    print("wrong:", error)
