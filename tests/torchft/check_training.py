"""Two replica groups of an unmodified torchft train a small module, with the lighthouse in TESON_LIGHTHOUSE. One line a check; the last line of
standard error is "all passed" if so."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time

STEPS = 20


def replica(address, name, steps):
    import torch
    import torch.distributed as dist
    from datetime import timedelta
    from torchft import Manager, Optimizer, ProcessGroupGloo

    torch.manual_seed(int(name))  # groups start apart: the first quorum must bring them together
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=2, replica_id="group_" + name, store_addr="localhost",
        store_port=store.port, rank=0, world_size=1, lighthouse_addr=address, use_async_quorum=False, timeout=timedelta(seconds=30),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])))
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.05))
    attempts = 0
    while manager.current_step() < steps and attempts < 10 * steps:
        attempts += 1
        optimizer.zero_grad()
        data = torch.Generator().manual_seed(1000 * manager.current_step() + int(name))
        x = torch.randn(32, 8, generator=data)
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        loss.backward()
        # Not torchft's DistributedDataParallel: that of 0.2.0 asserts in the survivors when a group dies inside the all-reduce.
        gradients = torch.nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
        manager.allreduce(gradients).wait()
        torch.nn.utils.vector_to_parameters(gradients, [p.grad for p in model.parameters()])
        optimizer.step()
        print(f"step {manager.current_step()} loss {loss.item():.4f} participants {manager.num_participants()}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"end {manager.current_step()} {digest}", flush=True)
    time.sleep(1)  # the other group may still be voting on the last step
    manager.shutdown(wait=False)
    os._exit(0)


def start(address, name):
    return subprocess.Popen([sys.executable, __file__, address, name, str(STEPS)], stdout=subprocess.PIPE, stderr=sys.stderr, text=True)


def finish(groups):
    """What each group printed; the ends must be equal."""
    outputs = [group.communicate(timeout=120)[0] for group in groups]
    ends = {re.search(r"^end .*", output, re.M).group() for output in outputs}
    assert len(ends) == 1 and f"end {STEPS} " in next(iter(ends)), ends
    return outputs


def two_groups_train_to_equal_weights():
    from lighthouse_class import LighthouseServer

    server = LighthouseServer("127.0.0.1:0", 2)
    outputs = finish([start(server.address(), name) for name in "01"])
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", outputs[0])]
    assert losses[-1] < losses[0] / 2, losses
    assert "participants 2" in outputs[0], outputs[0]


def a_killed_group_comes_back_and_ends_with_equal_weights():
    from lighthouse_class import LighthouseServer

    server = LighthouseServer("127.0.0.1:0", 2, heartbeat_timeout_ms=1000)
    stays, killed = (start(server.address(), name) for name in "01")
    for line in killed.stdout:
        if line.startswith("step 5 "):
            break
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    finish([stays, start(server.address(), "1")])


def main():
    failed = False
    for check in (two_groups_train_to_equal_weights, a_killed_group_comes_back_and_ends_with_equal_weights):
        name = check.__name__.replace("_", " ")
        try:
            check()
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed = True
            print(f"FAILED {name}: {error}", flush=True)
    if not failed:
        print("all passed", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    if len(sys.argv) == 4:
        replica(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.exit(main())
