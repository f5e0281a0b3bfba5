"""What NCCL would do on a described cluster: believed, chosen and expected times of its collectives.

system = from_fabric(load("h100-64-rail"), num_hosts=8, software={"nccl": "2.27"})    # describe.py
prediction = predict(system, "all_reduce", [2**20, 2**30])                            # predict.py
"""
