"""A rail fails in the middle of an all-reduce: its traffic moves to the next rail, and what that costs."""

from syncline.describe import units
from syncline.fabric import ClusterSpec, Tier, build
from syncline.program import lower, packed
from syncline.schedule import hierarchical, verify
from syncline.sim.flow.flow import FlowJob, LinkEvent, simulate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

fabric = build(ClusterSpec.model_validate({"hosts": 8, "host": "8 x H100", "network": "rail-optimized NDR"}))
network = FlowNetwork(fabric, NetworkOptions(routing="static"))
job = FlowJob(lower(verify(hierarchical((8, 8))), packed(fabric)), size_bytes=1 << 30)

healthy = simulate([job], network)
print(f"healthy:        {units.show_time(healthy.makespan_s)}")

leaf = fabric.device("leaf-03")
cables = [int(link) for link in fabric.out_links(leaf)]
halfway = healthy.makespan_s / 2
failed = simulate([job], network, events=[LinkEvent(halfway, link, reroute_s=1e-3) for link in cables])
print(f"leaf-03 fails:  {units.show_time(failed.makespan_s)} (halfway, traffic moves after 1 ms)")

for number in range(8):
    leaf = fabric.device(f"leaf-{number:02d}")
    into = [link ^ 1 for link in fabric.out_links(leaf) if fabric.links.tier[link] == Tier.ACCESS]
    before, after = (outcome.course.link_bytes[into].sum() for outcome in (healthy, failed))
    print(f"  leaf-{number:02d} received {units.show_size(before)} healthy, {units.show_size(after)} with the failure")
