"""One replica group of one rank. Trains until it is killed; prints a JSON line a step:

    {"at": s of the monotonic clock, "step": n, "committed": bool, "members": n, "quorum": id}

    train.py with GROUP [--tuned]       torchft: Manager, its DistributedDataParallel and Optimizer; the lighthouse is in TORCHFT_LIGHTHOUSE
    train.py without GROUP GROUPS       plain DistributedDataParallel; the meeting place is in MASTER_ADDR, MASTER_PORT
"""

import datetime
import json
import sys
import time

import model as work
import torch
from torch import nn

CLIP_NORM = 1.0
# What Manager takes in seconds, for failures that are found and left behind quickly. The defaults are 60 s each, heartbeats of 100 ms.
TUNED = {"timeout": 5, "quorum_timeout": 10, "connect_timeout": 5, "heartbeat_interval": 0.05}


def make():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = work.Model()
    # The numbers of bench/train_run.h and the defaults of the configuration; `fused` is the quickest that torch has.
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    return model, adam


def say(step, committed, members, quorum):
    print(json.dumps({"at": time.monotonic(), "step": step, "committed": committed, "members": members, "quorum": quorum}), flush=True)


def backward(net, model, step, group):
    net(*work.batch(step, group)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)


def train_with(group, tuned):
    from torch.distributed import TCPStore
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    class Recorder(Manager):
        """Keeps what should_commit said last."""

        committed = False

        def should_commit(self, timeout=None):
            self.committed = super().should_commit(timeout)
            return self.committed

    model, adam = make()

    def load(state):
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    settings = {name: datetime.timedelta(seconds=seconds) for name, seconds in TUNED.items()} if tuned else {}
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Recorder(
        pg=ProcessGroupGloo(timeout=settings.get("timeout", datetime.timedelta(seconds=60))),
        load_state_dict=load, state_dict=lambda: {"model": model.state_dict(), "adam": adam.state_dict()},
        min_replica_size=1, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        replica_id=f"group_{group}", hostname="127.0.0.1", **settings)
    net, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, adam)
    while True:
        optimizer.zero_grad()
        backward(net, model, manager.current_step(), group)
        optimizer.step()
        say(manager.current_step(), manager.committed, manager.num_participants(), manager._quorum_id)


def train_without(group, groups):
    import torch.distributed

    model, adam = make()
    torch.distributed.init_process_group("gloo", rank=group, world_size=groups)
    net = nn.parallel.DistributedDataParallel(model)
    step = 0
    while True:
        adam.zero_grad()
        backward(net, model, step, group)
        adam.step()
        step += 1
        say(step, True, groups, 1)


if __name__ == "__main__":
    if sys.argv[1] == "with":
        train_with(int(sys.argv[2]), "--tuned" in sys.argv)
    else:
        train_without(int(sys.argv[2]), int(sys.argv[3]))
